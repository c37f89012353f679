//! A relay between two ports: packets that arrive at one leave by the other.

use crate::world::Namespace;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use weft_core::frame::{Frame, Pool, PoolConfig};
use weft_engine::packet::port::DeviceCounters;
use weft_io::clock;
use weft_io::packet::Device;

/// The queues of both ports, the same number each.
pub(crate) type Pair = [Vec<Box<dyn Device>>; 2];

/// A relay on a thread of its own.
pub(crate) struct Relay {
    thread: JoinHandle<[DeviceCounters; 2]>,
    stop: Arc<AtomicBool>,
    /// The thread's id.
    id: Arc<AtomicI32>,
}

impl Relay {
    /// Opens the ports in a namespace, and starts the relay.
    pub(crate) fn start(namespace: &Namespace, open: impl FnOnce() -> Pair + Send) -> Self {
        let pair = namespace.enter(open);
        let stop = Arc::new(AtomicBool::new(false));
        let id = Arc::new(AtomicI32::new(0));
        let thread = std::thread::spawn({
            let (stop, id) = (Arc::clone(&stop), Arc::clone(&id));
            move || {
                // SAFETY: the call takes no memory.
                id.store(unsafe { libc::gettid() }, Ordering::Relaxed);
                run(pair, &stop)
            }
        });
        Self { thread, stop, id }
    }

    /// Processor time of its thread so far; zero if the kernel does not measure it.
    pub(crate) fn cpu(&self) -> Duration {
        let path = format!("/proc/self/task/{}/schedstat", self.id.load(Ordering::Relaxed));
        let spent = std::fs::read_to_string(path).unwrap_or_default();
        let nanos = spent.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
        Duration::from_nanos(nanos.unwrap_or(0))
    }

    /// Stops it, and returns the counters of its ports.
    pub(crate) fn stop(self) -> [DeviceCounters; 2] {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the relay does not panic")
    }
}

fn run(mut pair: Pair, stop: &AtomicBool) -> [DeviceCounters; 2] {
    let mut pool = Pool::new(PoolConfig::default());
    let queues = pair[0].len();
    // Frames that wait for each queue of both ports.
    let mut waiting: [Vec<Vec<Frame>>; 2] = [0, 1].map(|_| (0..queues).map(|_| Vec::new()).collect());
    while !stop.load(Ordering::Relaxed) {
        let mut moved = 0;
        for (from, to) in [(0, 1), (1, 0)] {
            for queue in 0..queues {
                let frames = &mut waiting[to][queue];
                if frames.is_empty() {
                    let received = pair[from][queue].receive(&mut pool, frames, clock::now());
                    moved += received.expect("the device is there");
                }
                moved += pair[to][queue].send(&mut pool, frames).expect("the device is there");
            }
        }
        if moved == 0 {
            wait(&pair);
        }
    }
    waiting.into_iter().flatten().flatten().for_each(|frame| pool.give(frame));
    assert_eq!(pool.in_use(), 0, "a buffer was lost");
    let sum = |sum, mut queue: Box<dyn Device>| add(sum, queue.counters());
    pair.map(|queues| queues.into_iter().fold(DeviceCounters::default(), sum))
}

/// Waits until a device is readable, or a moment.
fn wait(pair: &Pair) {
    let fds = pair.iter().flatten().filter_map(|device| device.fd());
    let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polls: Vec<_> = fds.map(poll).collect();
    // SAFETY: the list is writable for its length.
    let n = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as _, 5) };
    let error = io::Error::last_os_error();
    assert!(n >= 0 || error.kind() == io::ErrorKind::Interrupted, "{error}");
}

fn add(a: DeviceCounters, b: DeviceCounters) -> DeviceCounters {
    DeviceCounters {
        received: a.received + b.received,
        received_bytes: a.received_bytes + b.received_bytes,
        sent: a.sent + b.sent,
        sent_bytes: a.sent_bytes + b.sent_bytes,
        overrun: a.overrun + b.overrun,
        refused_in: a.refused_in + b.refused_in,
        refused_out: a.refused_out + b.refused_out,
        full: a.full + b.full,
        syscalls: a.syscalls + b.syscalls,
    }
}
