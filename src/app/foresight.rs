//! What a run would read, as the disk of this server has it.

use crate::engine::LocalFiles;
use crate::http::Foresight;
use crate::pipeline::sources;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// How many requests look at the sources at the same time; listing a large folder takes long.
const MAX_AT_ONCE: usize = 4;

/// Looks at the sources below `source_root`.
pub(super) fn foresight(source_root: &Path) -> Foresight {
    let files = LocalFiles::new(source_root);
    let places = Arc::new(Semaphore::new(MAX_AT_ONCE));
    Arc::new(move |definition, scope| {
        let (files, places) = (files.clone(), Arc::clone(&places));
        Box::pin(async move {
            let place = places.acquire_owned().await;
            let looked = tokio::task::spawn_blocking(move || {
                // Kept until the look has ended, though whoever asked may have gone.
                let _place = place;
                sources::foresee(&definition, &scope, &files, |path| files.bytes(path))
            });
            match looked.await {
                Ok(foreseen) => foreseen,
                Err(join) => std::panic::resume_unwind(join.into_panic()),
            }
        })
    })
}
