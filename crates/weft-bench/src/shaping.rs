//! Shaping on a real link: the accuracy of its rate, and the lateness of its packets.
//!
//! One namespace sends more than the link's rate through a node to another, whose kernel stamps arriving packets.
//! Within each second the stamps are compared with an ideal link, whose packets are exactly one transmission time
//! apart.
//!
//! On a machine with several cores, the node has a core of its own, and sender and receiver share the others.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use weft_io::packet::timestamp::TimestampedSocket;

use super::ports::{Case, End, Middle, Port, World, check};
use super::report::{Report, Row};
use super::rpc::Folder;

/// The port that discards datagrams.
const DISCARD: u16 = 9;
/// Bytes of a datagram, and of its headers: together an interface's MTU.
const DATAGRAM_BYTES: usize = 1472;
const FRAME_BYTES: usize = DATAGRAM_BYTES + 42;
/// The sent rate as a multiple of the link's.
const LOAD: f64 = 1.25;
/// The interval between bursts of datagrams.
const BURST: Duration = Duration::from_micros(500);
/// The first part is not measured: queues fill, addresses are resolved.
const WARM_UP_NS: i64 = 300_000_000;
const SECOND_NS: i64 = 1_000_000_000;
/// After this time no more packets are expected.
const WAIT: Duration = Duration::from_millis(500);

/// The goal: within a thousandth of the rate, and 99 in 100 packets at most 200 microseconds late.
const GOAL: &str = "goal, on a machine that does nothing else: rate within 0.1 % over a second, 99 in 100 packets of \
                    1 Gbit/s no later than 200 us";

/// A link of the program.
struct ShapedLink {
    name: &'static str,
    bits_per_s: u64,
    link: &'static str,
}

const LINKS: [ShapedLink; 3] = [
    ShapedLink {
        name: "10 Mbit/s",
        bits_per_s: 10_000_000,
        link: "CREATE LINK out ON PORT right RATE '10 Mbit/s' QUEUE fifo;",
    },
    ShapedLink {
        name: "100 Mbit/s",
        bits_per_s: 100_000_000,
        link: "CREATE LINK out ON PORT right RATE '100 Mbit/s' QUEUE fifo;",
    },
    ShapedLink {
        name: "1 Gbit/s",
        bits_per_s: 1_000_000_000,
        link: "CREATE LINK out ON PORT right RATE '1 Gbit/s' QUEUE fifo;",
    },
];

/// The figures of one second.
struct Second {
    rate_error_percent: f64,
    late_us_p50: f64,
    late_us_p99: f64,
}

/// Measures each link: its rate and the lateness of its packets, second by second.
pub(super) fn run(quick: bool) -> Result<Report, String> {
    let seconds = if quick { 2 } else { 10 };
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    let folder = Folder::new()?;
    let cores = Cores::of_this_thread()?;
    for shaped in &LINKS {
        let case = Case {
            name: shaped.name,
            ports: [Port::Packet; 2],
            middle: Middle::Shaped { link: shaped.link },
            is_both_ways: false,
        };
        let world = cores.on_cores(&cores.node, || World::new(&case, &folder, 1))?;
        check(&world)?;
        let stamps = cores.on_cores(&cores.ends, || stamps(&world, shaped.bits_per_s, seconds))?;
        let seen = seconds_of(&stamps, shaped.bits_per_s);
        if seen.is_empty() {
            failures.push(format!("{}: {} packets arrived, which is no second", shaped.name, stamps.len()));
            continue;
        }
        let mut row = |metric, unit, value: fn(&Second) -> f64| {
            let samples: Vec<f64> = seen.iter().map(value).collect();
            rows.push(Row::new(shaped.name, metric, unit, &samples));
        };
        row("rate error", "%", |second| second.rate_error_percent);
        row("late p50", "us", |second| second.late_us_p50);
        row("late p99", "us", |second| second.late_us_p99);
    }
    let mut notes = vec![GOAL.to_owned()];
    if cores.node == cores.all {
        notes.push("there is one core, which node, sender and receiver share".to_owned());
    }
    Ok(Report { bench: "shaping", rows, notes, failures })
}

/// The cores of the node, and of the ends: the same with only one core.
struct Cores {
    all: CpuSet,
    node: CpuSet,
    ends: CpuSet,
}

impl Cores {
    /// The cores that this thread may use: the last for the node and the others for the ends, if there are two or more.
    fn of_this_thread() -> Result<Self, String> {
        let all = sched_getaffinity(None).map_err(|error| format!("what cores there are: {error}"))?;
        let (mut node, mut ends) = (all, all);
        if let Some(last) = (0..CpuSet::MAX_CPU).rfind(|core| all.is_set(*core)).filter(|_| all.count() > 1) {
            node = CpuSet::new();
            node.set(last);
            ends.unset(last);
        }
        Ok(Self { all, node, ends })
    }

    /// Restricts this thread, and what it starts, to these cores.
    fn on_cores<T>(&self, cores: &CpuSet, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let keep_to =
            |cores| sched_setaffinity(None, cores).map_err(|error| format!("to keep to cores: {error}"));
        keep_to(cores)?;
        let done = work();
        keep_to(&self.all)?;
        done
    }
}

/// The arrival times of packets after the link, in nanoseconds.
fn stamps(world: &World, bits_per_s: u64, seconds: u64) -> Result<Vec<i64>, String> {
    let [a, b] = &world.ends;
    let (from, to) = (socket(a, 0)?, socket(b, DISCARD)?);
    let address = to.local_addr().map_err(|error| error.to_string())?;
    to.set_read_timeout(Some(WAIT)).map_err(|error| error.to_string())?;
    let to = TimestampedSocket::new(to).map_err(|error| error.to_string())?;
    let time = Duration::from_secs(seconds) + Duration::from_nanos(WARM_UP_NS as u64 * 2);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let mut stamps =
                Vec::with_capacity((bits_per_s / (FRAME_BYTES as u64 * 8) * (seconds + 1)) as usize);
            loop {
                match to.receive(&mut [0; 64]) {
                    Ok((_, at)) => stamps.push(at.0),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // No packet for this long: it is over, or has not begun, which the figures show.
                    Err(_) => return stamps,
                }
            }
        });
        let bytes = vec![0; DATAGRAM_BYTES];
        let a_burst = LOAD * bits_per_s as f64 * BURST.as_secs_f64() / (FRAME_BYTES * 8) as f64;
        let (begun, mut sent) = (Instant::now(), 0_u64);
        while begun.elapsed() < time {
            let due = (begun.elapsed().as_secs_f64() / BURST.as_secs_f64() * a_burst) as u64 + 1;
            while sent < due {
                // Ignore errors: a packet that the machine has no room for would be dropped by the link anyway.
                let _ = from.send_to(&bytes, address);
                sent += 1;
            }
            std::thread::sleep(BURST);
        }
        receiver.join().map_err(|_| "the receiver has failed".to_owned())
    })
}

fn socket(end: &End, port: u16) -> Result<UdpSocket, String> {
    let bound = end.namespace.run(|| UdpSocket::bind((end.address, port)));
    bound.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// Computes the figures of each whole second from the packets' time stamps.
fn seconds_of(stamps: &[i64], bits_per_s: u64) -> Vec<Second> {
    let frame_ns = (FRAME_BYTES * 8) as f64 * 1e9 / bits_per_s as f64;
    let Some(first) = stamps.first().map(|first| first + WARM_UP_NS) else { return Vec::new() };
    let mut stamps = stamps;
    let mut seconds = Vec::new();
    for nth in 0.. {
        let begun = first + nth * SECOND_NS;
        stamps = &stamps[stamps.partition_point(|at| *at < begun)..];
        let n = stamps.partition_point(|at| *at < begun + SECOND_NS);
        // The last second is incomplete.
        if n == stamps.len() || n < 2 {
            break;
        }
        seconds.push(second(&stamps[..=n], frame_ns));
    }
    seconds
}

/// The figures of the packets of a second, and of the first one after it.
fn second(stamps: &[i64], frame_ns: f64) -> Second {
    let passed = (stamps[stamps.len() - 1] - stamps[0]) as f64;
    let meant = (stamps.len() - 1) as f64 * frame_ns;
    let offset = |(nth, at): (usize, &i64)| (at - stamps[0]) as f64 - nth as f64 * frame_ns;
    let mut late: Vec<f64> = stamps.iter().enumerate().map(offset).collect();
    late.sort_by(f64::total_cmp);
    // The least late packet counts as punctual.
    let at = |share: f64| (late[((late.len() - 1) as f64 * share) as usize] - late[0]) / 1e3;
    Second {
        rate_error_percent: (meant / passed - 1.0).abs() * 100.0,
        late_us_p50: at(0.5),
        late_us_p99: at(0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link that is too fast, or uneven, would be reported as exact.
    #[test]
    fn stamps_compare_with_ideal_link() {
        let bits = (FRAME_BYTES * 8) as u64;
        // A frame each millisecond, for three and a half seconds.
        let exact: Vec<i64> = (0..3_800).map(|nth| nth * 1_000_000).collect();
        let seen = seconds_of(&exact, bits * 1_000);
        assert_eq!(seen.len(), 3);
        assert!(seen.iter().all(|one| one.rate_error_percent < 1e-9 && one.late_us_p99 < 1e-6));
        let fast = seconds_of(&exact, bits * 990);
        assert!((fast[0].rate_error_percent - 100.0 / 99.0).abs() < 0.01, "{}", fast[0].rate_error_percent);
        // Every fourth frame is a tenth of a millisecond late.
        let late: Vec<i64> =
            exact.iter().enumerate().map(|(nth, at)| at + i64::from(nth % 4 == 3) * 100_000).collect();
        let seen = seconds_of(&late, bits * 1_000);
        assert!((seen[1].late_us_p99 - 100.0).abs() < 1e-6 && seen[1].late_us_p50 < 1e-6);
        assert!(seconds_of(&[], bits).is_empty() && seconds_of(&[1], bits).is_empty());
    }
}
