//! Recordings of call queues: each worker records the operations on its queue.
//!
//! A call that leaves before its turn stays in the queue until the queue is refilled. The queue does not know of
//! either, so both are recorded, with the numbers of the calls in the recording.

use super::{WorkerQueue, nanos};
use crate::engine::Engine;
use crate::queue::Packet;
use crate::recording::{Limits, QueueEvent, Recorder, RecordingProgress, SharedUsage};
use std::sync::Arc;
use weft_core::Time;

/// Records the operations on a worker's queue.
#[derive(Debug)]
pub(super) struct QueueRecorder {
    recorder: Recorder,
    /// The numbers of the waiting calls, by handle.
    numbers: Vec<u64>,
    /// The next number.
    n: u64,
}

impl Engine {
    /// Starts to record this worker's part of a call queue. All workers that record it share `taken`. False: it already
    /// records; None: there is no such queue.
    pub fn record_call_queue(
        &mut self,
        now: Time,
        name: &str,
        limits: Limits,
        taken: &Arc<SharedUsage>,
    ) -> Option<bool> {
        let worker_queue =
            self.call_queues.values_mut().find(|worker_queue| worker_queue.plan.name == name)?;
        if worker_queue.recorder.is_some() {
            return Some(false);
        }
        worker_queue.recorder = Some(Box::new(QueueRecorder::of(worker_queue, nanos(now), limits, taken)));
        Some(true)
    }

    /// The progress of all recordings, by the names of the call queues.
    pub fn call_queue_recordings(&self, now: Time) -> Vec<(String, RecordingProgress)> {
        let progress = |worker_queue: &WorkerQueue| {
            let recorder = worker_queue.recorder.as_ref()?;
            Some((worker_queue.plan.name.clone(), recorder.recorder.progress(nanos(now))))
        };
        self.call_queues.values().filter_map(progress).collect()
    }

    /// Takes this worker's recording of a call queue, and stops it.
    pub fn take_call_queue_recording(&mut self, name: &str) -> Option<Recorder> {
        let worker_queue =
            self.call_queues.values_mut().find(|worker_queue| worker_queue.plan.name == name)?;
        worker_queue.recorder.take().map(|recorder| recorder.recorder)
    }
}

impl QueueRecorder {
    /// Creates a recorder for a queue in its current state, and numbers the packets that wait in it.
    fn of(worker_queue: &WorkerQueue, now_ns: u64, limits: Limits, taken: &Arc<SharedUsage>) -> Self {
        let recorder = Recorder::resuming(now_ns, &worker_queue.queue.snapshot(), limits).sharing(taken);
        let mut recorder = Self { recorder, numbers: Vec::new(), n: 0 };
        for handle in worker_queue.queue.waiting() {
            recorder.number(handle as u32);
            if worker_queue.calls[handle as usize].is_none() {
                recorder.left(handle as u32, now_ns);
            }
        }
        recorder
    }

    pub(super) fn note(&mut self, now_ns: u64, event: &QueueEvent) {
        self.recorder.note(now_ns, event);
    }

    /// A call enters the queue as this packet.
    pub(super) fn entered(&mut self, packet: &Packet, now_ns: u64) {
        self.number(packet.handle as u32);
        self.note(now_ns, &QueueEvent::Enqueue(*packet));
    }

    /// A call no longer waits.
    pub(super) fn left(&mut self, handle: u32, now_ns: u64) {
        self.note(now_ns, &QueueEvent::Left(self.numbers[handle as usize]));
    }

    /// Records that the queue was emptied and refilled with these packets, and numbers them.
    pub(super) fn refilled(&mut self, packets: &[(Packet, u64)], now_ns: u64) {
        let number = |(packet, _): &(Packet, u64)| self.numbers[packet.handle as usize];
        let event = QueueEvent::Refilled(packets.iter().map(number).collect());
        self.note(now_ns, &event);
    }

    /// Stops: later operations are on another queue.
    pub(super) fn end(&mut self) {
        self.recorder.end();
    }

    /// Assigns the next packet number to a handle.
    fn number(&mut self, handle: u32) {
        let at = handle as usize;
        self.numbers.resize(self.numbers.len().max(at + 1), 0);
        self.numbers[at] = self.n;
        self.n += 1;
    }
}
