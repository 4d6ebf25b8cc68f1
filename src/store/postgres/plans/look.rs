//! A look at a plan for what takes longer the more runs there are.

use serde_json::Value;
use sqlx::PgConnection;
use std::collections::BTreeSet;

/// The most rows that may be sorted: those of a page.
const PAGE: f64 = 1_000.0;

/// Tables of one row, or of one for each pipeline, each of its versions or each token.
const SMALL: [&str; 4] = ["definitions", "meta", "tables", "tokens"];

pub(super) struct Look {
    /// Tables of more rows than a page.
    large: BTreeSet<String>,
    /// Indexes of the runs that wait or are held.
    partial: BTreeSet<String>,
}

impl Look {
    pub(super) async fn over(connection: &mut PgConnection) -> Self {
        let large = "select relname::text from pg_class where relkind = 'r' and reltuples > $1";
        let large = sqlx::query_scalar(large).bind(PAGE).fetch_all(&mut *connection).await.unwrap();
        let partial = "select indexrelid::regclass::text from pg_index where indpred is not null";
        let partial = sqlx::query_scalar(partial).fetch_all(connection).await.unwrap();
        Self { large: large.into_iter().collect(), partial: partial.into_iter().collect() }
    }

    /// Scans of large tables and of their indexes, and large sorts. Where `fills_a_page`, an index may be read from its end on
    /// until a limit is reached.
    pub(super) fn at(&self, plan: &Value, fills_a_page: bool) -> Vec<String> {
        let mut found = Vec::new();
        self.node(plan, fills_a_page, false, &mut found);
        found
    }

    /// Scans of any table, in a plan that was to have none.
    pub(super) fn without_scans(&self, plan: &Value) -> Vec<String> {
        let own = match (text(plan, "Node Type"), text(plan, "Relation Name")) {
            ("Seq Scan", table) if !SMALL.contains(&table) => vec![format!("no index of {table} serves it")],
            _ => Vec::new(),
        };
        own.into_iter().chain(children(plan).flat_map(|child| self.without_scans(child))).collect()
    }

    /// `limited` where rows are taken only until a limit is reached.
    fn node(&self, node: &Value, fills_a_page: bool, limited: bool, found: &mut Vec<String>) {
        let (table, index) = (text(node, "Relation Name"), text(node, "Index Name"));
        let rows = node["Plan Rows"].as_f64().unwrap_or(f64::INFINITY);
        let limited = match text(node, "Node Type") {
            "Limit" => fills_a_page,
            "Seq Scan" if self.large.contains(table) && !SMALL.contains(&table) => {
                found.push(format!("all of {table} is read"));
                false
            }
            "Sort" if rows > PAGE => {
                found.push(format!("{rows} rows are sorted"));
                false
            }
            "Index Scan" | "Index Only Scan" | "Bitmap Index Scan"
                if node["Index Cond"].is_null() && !limited && !self.partial.contains(index) =>
            {
                found.push(format!("all of the index {index} is read"));
                false
            }
            "Sort" | "Hash" | "Materialize" | "Aggregate" => false,
            _ => limited,
        };
        for child in children(node) {
            let stays = limited && text(child, "Parent Relationship") == "Outer";
            self.node(child, fills_a_page, stays, found);
        }
    }
}

fn text<'a>(node: &'a Value, field: &str) -> &'a str {
    node[field].as_str().unwrap_or_default()
}

fn children(node: &Value) -> impl Iterator<Item = &Value> {
    node["Plans"].as_array().into_iter().flatten()
}
