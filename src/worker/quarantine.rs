//! Rows that an attempt has kept apart come out of its staging before anything is recorded of it, and are told of.

use super::ending::table_error;
use super::{Attempt, Step, Worker};
use crate::run::{Quarantine, RunError, Warning};

impl Worker {
    /// Ends an attempt that rejected too many rows as failed; its rows are what people look at then.
    pub(super) async fn reject(&self, attempt: &Attempt<'_>, mut error: RunError, staged: Quarantine) {
        match self.moved(attempt, staged).await {
            Ok(quarantine) => {
                error.detail.push_str(&told(&quarantine));
                self.fail_with(attempt, error, Some(quarantine)).await;
            }
            Err(error) => self.fail(attempt, error).await,
        }
    }

    /// What an attempt that is about to decide has kept apart, where it is now. The warning of rejected rows says where.
    pub(super) async fn keep_apart(
        &self,
        attempt: &Attempt<'_>,
        staged: Option<Quarantine>,
        warnings: &mut [Warning],
    ) -> Result<Option<Quarantine>, RunError> {
        let Some(staged) = staged else { return Ok(None) };
        let quarantine = self.moved(attempt, staged).await?;
        for warning in warnings.iter_mut().filter(|warning| warning.kind == "rows-rejected") {
            warning.detail.push_str(&told(&quarantine));
        }
        Ok(Some(quarantine))
    }

    async fn moved(&self, attempt: &Attempt<'_>, staged: Quarantine) -> Result<Quarantine, RunError> {
        let (pipeline, run, token) = (attempt.run.pipeline.clone(), attempt.run.id, attempt.token);
        let name = staged.path.clone();
        let moving = self.on_disk(move |warehouse| warehouse.quarantine(&pipeline, run, token, &name));
        let path = moving.await.map_err(|e| table_error(&e))?;
        self.probe.reached(Step::Quarantined).await?;
        Ok(Quarantine { path, ..staged })
    }
}

fn told(quarantine: &Quarantine) -> String {
    let Quarantine { path, rows, of, .. } = quarantine;
    match quarantine.is_capped() {
        true => format!("; the first {rows} of {of} rows that were kept apart are in {path}"),
        false => format!("; {path} has the rows that were kept apart"),
    }
}
