//! Backups of a place's database, without its files in the warehouse.

use super::Place;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::fs;
use std::path::PathBuf;

/// A database as it was at some moment.
pub(crate) enum Backup {
    Files(Vec<(PathBuf, Vec<u8>)>),
    Database { admin: String, original: String, copy: String },
}

impl Place {
    /// Keeps the database as it is. No server may run.
    pub(crate) async fn backup(&self) -> Backup {
        let Some(url) = self.database_url() else {
            return Backup::Files(
                self.database_files().into_iter().map(|p| (p.clone(), fs::read(p).unwrap())).collect(),
            );
        };
        let (server, original) = url.rsplit_once('/').unwrap();
        let (admin, original) = (format!("{server}/postgres"), original.to_owned());
        let copy = format!("{original}_{}", uuid::Uuid::new_v4().simple());
        execute(&admin, &format!("alter database {original} allow_connections false")).await;
        execute(
            &admin,
            &format!("select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '{original}'"),
        )
        .await;
        execute(&admin, &format!("create database {copy} template {original}")).await;
        execute(&admin, &format!("alter database {original} allow_connections true")).await;
        Backup::Database { admin, original, copy }
    }

    /// Puts the database back to what it was. Whoever is connected to Postgres is thrown out; no server of a SQLite file may
    /// run.
    pub(crate) async fn restore(&self, backup: &Backup) {
        match backup {
            Backup::Files(files) => {
                self.database_files().into_iter().for_each(|path| fs::remove_file(path).unwrap());
                files.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
            }
            Backup::Database { admin, original, copy } => {
                execute(admin, &format!("drop database {original} with (force)")).await;
                execute(admin, &format!("create database {original} template {copy}")).await;
            }
        }
    }

    /// The SQLite file and its log.
    fn database_files(&self) -> Vec<PathBuf> {
        let all = ["refrain.db", "refrain.db-wal", "refrain.db-shm"].map(|name| self.path("refrain-data").join(name));
        all.into_iter().filter(|path| path.exists()).collect()
    }
}

async fn execute(admin: &str, statement: &str) {
    let mut connection = PgConnection::connect(admin).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}
