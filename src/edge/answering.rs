//! Whether a connection has a request that is being answered.

use axum::BoxError;
use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

/// Whether a request of the connection is being answered: from its whole head to the end of the answer.
#[derive(Clone, Default)]
pub(super) struct Answering(Arc<AtomicBool>);

impl Answering {
    pub(super) fn is_going_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// A request has come.
    pub(super) fn begin(&self) -> UnderWay {
        self.0.store(true, Ordering::Relaxed);
        UnderWay(self.clone())
    }
}

/// An answer that has not ended. One connection has no more than one.
pub(super) struct UnderWay(Answering);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// An answer's body, under way until it is dropped.
pub(super) struct Answer {
    pub(super) body: Body,
    pub(super) _under_way: UnderWay,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
