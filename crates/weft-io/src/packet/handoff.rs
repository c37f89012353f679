//! Passes frames from one worker to another.
//!
//! Each worker has its own pool, devices and engine. If a port has fewer queues than there are workers, one worker
//! sends for those without a queue; if a port has a link, one worker has the link for all. The others pass their frames
//! to it through a [`HandoffQueue`], in order. The bytes are copied, so that no buffer leaves its pool.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_core::frame::{Frame, FrameMeta, Pool};

/// Largest number of frames in a queue. Its owner may have taken as many before.
const FRAMES_MAX: usize = 1024;
/// Largest number of bytes in a queue when another frame is added: frames that stand for several packets are long.
const BYTES_MAX: usize = 4 << 20;

/// Wakes a worker, but only if it sleeps.
#[derive(Debug)]
pub(super) struct Doorbell {
    is_asleep: AtomicBool,
    wake: UnixStream,
}

/// Frames in transit to the worker that owns a port.
#[derive(Debug)]
pub(super) struct HandoffQueue {
    held: Mutex<HandoffFrames>,
    /// Number of frames in `held`: an empty queue is not locked.
    n: AtomicUsize,
    owner: Arc<Doorbell>,
}

/// The handoff queues of a port.
#[derive(Debug)]
pub(super) struct PortHandoffs {
    /// To the link in front of the chains.
    pub(super) arriving: HandoffQueue,
    /// To the device, and its link.
    pub(super) leaving: HandoffQueue,
}

/// Frames that an owner has taken from a queue and not yet copied into buffers.
#[derive(Debug, Default)]
pub(super) struct HandoffBatch {
    held: HandoffFrames,
    /// The next frame, and the offset of its bytes.
    frame: usize,
    byte: usize,
}

#[derive(Debug, Default)]
struct HandoffFrames {
    bytes: Vec<u8>,
    frames: Vec<(FrameMeta, usize)>,
}

impl Doorbell {
    pub(super) fn new(wake: UnixStream) -> Self {
        Self { is_asleep: AtomicBool::new(false), wake }
    }

    /// Wakes the worker that takes the frames, if it sleeps. Call this after a handoff.
    pub(super) fn ring(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Called after sending mail.
    pub(super) fn wake(&self) {
        // If the pipe is full, the worker has not read earlier bytes, and will wake up.
        let _ = (&self.wake).write(&[0]);
    }

    /// Called before the worker sleeps; it checks its queues once more afterwards.
    pub(super) fn set_asleep(&self) {
        self.is_asleep.store(true, Ordering::SeqCst);
    }

    /// Called when the worker is awake.
    pub(super) fn set_awake(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
    }
}

impl PortHandoffs {
    pub(super) fn new(owner: &Arc<Doorbell>) -> Self {
        Self { arriving: HandoffQueue::new(owner), leaving: HandoffQueue::new(owner) }
    }

    /// Whether one of them has frames.
    pub(super) fn has_frames(&self) -> bool {
        self.arriving.has_frames() || self.leaving.has_frames()
    }
}

impl HandoffQueue {
    fn new(owner: &Arc<Doorbell>) -> Self {
        Self { held: Mutex::default(), n: AtomicUsize::new(0), owner: Arc::clone(owner) }
    }

    /// Whether it has frames.
    pub(super) fn has_frames(&self) -> bool {
        self.n.load(Ordering::SeqCst) > 0
    }

    /// Hands over frames from the front, and returns their number; their buffers are free again. Frames without room
    /// stay.
    pub(super) fn put(&self, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        let mut held = self.lock();
        let room = FRAMES_MAX - held.frames.len();
        let mut n = 0;
        for frame in frames.iter().take(room) {
            if held.bytes.len() >= BYTES_MAX {
                break;
            }
            held.bytes.extend_from_slice(pool.bytes(frame));
            held.frames.push((frame.meta, frame.len()));
            n += 1;
        }
        self.n.store(held.frames.len(), Ordering::SeqCst);
        drop(held);
        if n > 0 {
            self.owner.ring();
            frames.drain(..n).for_each(|frame| pool.give(frame));
        }
        n
    }

    /// Takes all frames, unless some of the last batch are left.
    pub(super) fn take(&self, batch: &mut HandoffBatch) {
        if batch.has_frames() || !self.has_frames() {
            return;
        }
        batch.held.bytes.clear();
        batch.held.frames.clear();
        (batch.frame, batch.byte) = (0, 0);
        let mut held = self.lock();
        core::mem::swap(&mut *held, &mut batch.held);
        self.n.store(0, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, HandoffFrames> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HandoffBatch {
    /// Whether frames are left.
    pub(super) fn has_frames(&self) -> bool {
        self.frame < self.held.frames.len()
    }

    /// Copies the next frame to a buffer of this pool. None: there is no frame, or no free buffer.
    pub(super) fn next(&mut self, pool: &mut Pool) -> Option<Frame> {
        let (meta, length) = *self.held.frames.get(self.frame)?;
        let mut frame = pool.take_filled(&self.held.bytes[self.byte..][..length])?;
        frame.meta = meta;
        self.frame += 1;
        self.byte += length;
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::frame::PoolConfig;

    fn handoff() -> HandoffQueue {
        let (wake, _woken) = UnixStream::pair().expect("a socket pair can be opened");
        HandoffQueue::new(&Arc::new(Doorbell::new(wake)))
    }

    fn frames(pool: &mut Pool, n: usize, length: usize) -> Vec<Frame> {
        let fill = |at: usize| {
            let mut frame = pool.take_filled(&vec![at as u8; length]).expect("the pool has a buffer");
            frame.meta.sequence = at as u64;
            frame
        };
        (0..n).map(fill).collect()
    }

    /// Frames of a flow through another worker's port would be reordered or changed; or each would lose a buffer.
    #[test]
    fn handoff_keeps_order_and_pools() {
        let (mut ours, mut theirs) = (Pool::new(PoolConfig::default()), Pool::new(PoolConfig::default()));
        let (handoff, mut batch) = (handoff(), HandoffBatch::default());
        let mut seen = 0;
        for round in 0..3 {
            let mut sent = frames(&mut ours, 5 + round, 60 + round);
            assert_eq!(handoff.put(&mut ours, &mut sent), 5 + round);
            handoff.take(&mut batch);
            assert!(!handoff.has_frames());
            for at in 0..5 + round {
                let frame = batch.next(&mut theirs).expect("the pool has a buffer");
                assert_eq!(theirs.bytes(&frame), vec![at as u8; 60 + round]);
                assert_eq!(frame.meta.sequence, at as u64);
                theirs.give(frame);
                seen += 1;
            }
            assert!(batch.next(&mut theirs).is_none() && !batch.has_frames());
        }
        assert_eq!((seen, ours.in_use(), theirs.in_use()), (18, 0, 0));
    }

    /// A worker slower than the others would use all memory.
    #[test]
    fn full_handoff_takes_no_more() {
        let mut pool = Pool::new(PoolConfig::default());
        let handoff = handoff();
        let mut sent = frames(&mut pool, FRAMES_MAX + 9, 60);
        assert_eq!(handoff.put(&mut pool, &mut sent), FRAMES_MAX);
        assert_eq!((handoff.put(&mut pool, &mut sent), sent.len()), (0, 9));
        let mut batch = HandoffBatch::default();
        handoff.take(&mut batch);
        assert_eq!(handoff.put(&mut pool, &mut sent), 9);
        // The earlier batch comes first.
        handoff.take(&mut batch);
        assert!(handoff.has_frames());
        let long = self::handoff();
        let mut sent = frames(&mut pool, 100, 60_000);
        let n = long.put(&mut pool, &mut sent);
        assert!((BYTES_MAX / 60_000..BYTES_MAX / 60_000 + 2).contains(&n), "{n}");
        sent.drain(..).for_each(|frame| pool.give(frame));
    }
}
