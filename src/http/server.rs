//! What all requests share.

use super::Api;
use super::questions::Questions;
use std::ops::Deref;
use std::sync::Arc;

/// The parts of the interface, and what is being asked of its store. Each request has a few copies of it, which cost nothing.
#[derive(Clone)]
pub(super) struct Server(Arc<Shared>);

struct Shared {
    api: Api,
    questions: Questions,
}

impl Server {
    pub(super) fn of(api: Api) -> Self {
        let questions = Questions::of(&api.store);
        Self(Arc::new(Shared { api, questions }))
    }

    pub(super) fn questions(&self) -> &Questions {
        &self.0.questions
    }
}

impl Deref for Server {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.0.api
    }
}
