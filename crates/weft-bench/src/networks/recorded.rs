//! Records the requests to a queue of a simulated link.

use std::sync::{Arc, Mutex, PoisonError};

use weft_engine::recording::{Limits, QueueEvent, Recorder};
use weft_sim::net::{Backlog, Discipline, Dropped, Item, packet_of};

/// The limits of a recording: the first minute of a simulated link.
pub(super) const LIMITS: Limits = Limits { ns: 60_000_000_000, ..Limits::NONE };

/// A discipline that records its requests.
pub(super) struct RecordedDiscipline {
    /// The rate of the link, in bits a second, if it has changed since the last recorded request.
    rate: Option<u64>,
    inner: Box<dyn Discipline>,
    recorder: Arc<Mutex<Recorder>>,
}

impl RecordedDiscipline {
    /// Wraps a queue that has had no requests yet, and has this seed; the second value holds the recording.
    pub(super) fn new(inner: Box<dyn Discipline>, seed: u64) -> (Self, Arc<Mutex<Recorder>>) {
        let recorder = Arc::new(Mutex::new(Recorder::new(0, seed, LIMITS)));
        (Self { rate: None, inner, recorder: Arc::clone(&recorder) }, recorder)
    }

    /// Records a request to the queue; the first is preceded by the link's rate.
    fn note(&mut self, now_ns: u64, asked: &QueueEvent) {
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rate) = self.rate.take() {
            recorder.note(now_ns, &QueueEvent::Rate(rate));
        }
        recorder.note(now_ns, asked);
    }
}

impl Discipline for RecordedDiscipline {
    fn enqueue(&mut self, item: Item, now_ns: u64) {
        self.note(now_ns, &QueueEvent::Enqueue(packet_of(&item)));
        self.inner.enqueue(item, now_ns);
    }

    fn set_rate(&mut self, bits_per_s: u64) {
        self.rate = Some(bits_per_s);
        self.inner.set_rate(bits_per_s);
    }

    fn dequeue(&mut self, now_ns: u64) -> Option<Item> {
        self.note(now_ns, &QueueEvent::Dequeue);
        self.inner.dequeue(now_ns)
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.inner.poll_timeout()
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        self.note(now_ns, &QueueEvent::Timeout);
        self.inner.handle_timeout(now_ns);
    }

    fn poll_drop(&mut self) -> Option<Dropped> {
        self.inner.poll_drop()
    }

    fn backlog(&self) -> Backlog {
        self.inner.backlog()
    }
}
