//! `/status`, once a second, to whoever looks: server-sent events.
//!
//! However many look, a status is made at most twice a second: each event is kept and handed to
//! all. A viewer that does not read is not written for; it gets the present when it reads again.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::lifecycle::{Clock, DrainWatch, Phase};

/// From one event to the next.
const PERIOD: Duration = Duration::from_secs(1);

/// An event may be handed to others for this long.
const FRESH: Duration = Duration::from_millis(500);

/// Makes events, and keeps the last.
pub(super) struct Feed {
    status: Box<dyn Fn() -> Value + Send + Sync>,
    clock: Clock,
    phase: DrainWatch,
    /// When it was made, and what it is; held while one is made, so that nobody makes it twice.
    last: Mutex<Option<(Duration, Bytes)>>,
}

impl Feed {
    pub(super) fn new(
        status: impl Fn() -> Value + Send + Sync + 'static,
        clock: Clock,
        phase: DrainWatch,
    ) -> Arc<Self> {
        Arc::new(Self { status: Box::new(status), clock, phase, last: Mutex::default() })
    }

    /// The present, as an event.
    fn event(&self) -> Bytes {
        let now = self.clock.elapsed();
        let mut last = self.last.lock();
        if let Some((made, event)) = &*last
            && now.saturating_sub(*made) < FRESH
        {
            return event.clone();
        }
        // JSON holds no line break outside its strings, where it is escaped: one line of data.
        let event = Bytes::from(format!("data: {}\n\n", (self.status)()));
        *last = Some((now, event.clone()));
        event
    }
}

/// The body of one viewer's answer: an event at once, then one a second until the process closes.
pub(super) struct Events {
    feed: Arc<Feed>,
    tick: Interval,
}

impl Events {
    pub(super) fn new(feed: Arc<Feed>) -> Self {
        let mut tick = interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { feed, tick }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let _tick = ready!(self.tick.poll_tick(cx));
        if self.feed.phase.phase() == Phase::Closed {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(self.feed.event()))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;
    use crate::lifecycle::Drain;

    #[tokio::test(start_paused = true)]
    async fn an_event_a_second_made_once_for_all_until_the_process_closes() {
        let made = Arc::new(AtomicU32::new(0));
        let (drain, count) = (Drain::new(), Arc::clone(&made));
        let status =
            move || json!({ "made": count.fetch_add(1, Ordering::Relaxed), "two": "a\nb" });
        let clock = Clock::start();
        let feed = Feed::new(status, clock, drain.watch());
        let mut viewers: Vec<_> = (0..20).map(|_| Events::new(Arc::clone(&feed))).collect();
        for second in 0..3 {
            for viewer in &mut viewers {
                let frame = viewer.frame().await.unwrap().unwrap().into_data().unwrap();
                let text = std::str::from_utf8(&frame).unwrap();
                assert_eq!(text, format!("data: {{\"made\":{second},\"two\":\"a\\nb\"}}\n\n"));
            }
            assert_eq!(clock.elapsed(), Duration::from_secs(second));
        }
        assert_eq!(made.load(Ordering::Relaxed), 3);
        drain.advance(Phase::Closed);
        assert!(viewers[0].frame().await.is_none());
    }
}
