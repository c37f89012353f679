//! Tests each queue of the library by a law from its paper.

#![allow(clippy::disallowed_methods, reason = "tests read the library")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_core::rng::Rng;
use weft_core::schema::Schema;
use weft_engine::queue::{DropCause, Packet, Queue, Sent};
use weft_ir::queue::run::Interpreted;
use weft_ir::queue::{Field, QueueProgram, verify};
use weft_lang::diagnostic::{RenderOptions, render};
use weft_lang::resolve::{Resolver, SchemaFault, SchemaSource};

#[path = "../../../weft-control/library_folder.rs"]
mod library_folder;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn library() -> PathBuf {
    library_folder::library_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).join("queues")
}

/// The library's files, and one program.
struct Files<'f>(&'f str);

impl Resolver for Files<'_> {
    fn text(&mut self, path: &str, _: Option<&str>) -> Result<String, String> {
        match path.strip_prefix("library/queues/") {
            Some(name) => std::fs::read_to_string(library().join(name)).map_err(|error| error.to_string()),
            None => Ok(self.0.to_owned()),
        }
    }

    fn schema(&mut self, _: &SchemaSource<'_>, _: Option<&str>) -> Result<Schema, SchemaFault> {
        Err("there are no schemas here".to_owned().into())
    }
}

/// The queues of a program, lowered and verified.
pub(crate) fn programs(text: &str) -> Vec<QueueProgram> {
    let (network, diagnostics, sources) = weft_lang::check::check("main.weft", &mut Files(text));
    let rendered = || {
        let all = diagnostics.iter().map(|found| render(found, &sources, RenderOptions::default()));
        all.collect::<Vec<_>>().join("\n")
    };
    let network = network.unwrap_or_else(|| panic!("{}", rendered()));
    let lowered: Vec<QueueProgram> = network.queues.iter().map(weft_opt::lower::queue).collect();
    for program in &lowered {
        assert_eq!(verify::verify(program), Ok(()), "{program}");
    }
    lowered
}

/// The diagnostic codes of a program.
pub(crate) fn faults(text: &str) -> Vec<String> {
    let (_, diagnostics, _) = weft_lang::check::check("main.weft", &mut Files(text));
    diagnostics.iter().map(|found| found.code.0.to_owned()).collect()
}

pub(crate) fn library_queue(name: &str, args: &str) -> Arc<QueueProgram> {
    let text = format!("IMPORT 'library/queues/{name}.weft';\nCREATE QUEUE it AS {name}{args}; END;",);
    let found = programs(&text).into_iter().find(|program| program.name == "it");
    Arc::new(found.expect("the queue is in the program"))
}

pub(crate) fn queue(name: &str, args: &str) -> Queue<Interpreted> {
    let program = library_queue(name, args);
    Queue::new(program.clone(), Interpreted::new(program), 0, 1)
}

/// A link with a fixed rate behind a queue.
struct TestLink {
    queue: Queue<Interpreted>,
    bits_per_s: u64,
    free_at: u64,
    sent: Vec<(u64, Sent)>,
}

impl TestLink {
    fn new(queue: Queue<Interpreted>, bits_per_s: u64) -> Self {
        Self { queue, bits_per_s, free_at: 0, sent: Vec::new() }
    }

    /// Sends all packets that may leave until this time.
    fn run(&mut self, until: u64) {
        while self.free_at <= until {
            let now = self.free_at;
            match self.queue.dequeue(now) {
                Some(sent) => {
                    self.sent.push((now, sent));
                    self.free_at = now + u64::from(sent.len) * 8 * S / self.bits_per_s;
                }
                None => match self.queue.poll_timeout() {
                    Some(at) if at <= until && at > now => self.free_at = at,
                    _ => break,
                },
            }
        }
    }

    fn offer(&mut self, packet: &Packet, now: u64) {
        self.run(now);
        self.free_at = self.free_at.max(now);
        self.queue.enqueue(packet, now);
        self.run(now);
        assert!(self.queue.counts().is_conserved(), "{:?}", self.queue.counts());
    }

    fn bytes(&self, of: impl Fn(&Sent) -> bool) -> u64 {
        self.sent.iter().filter(|(_, sent)| of(sent)).map(|(_, sent)| u64::from(sent.len)).sum()
    }
}

pub(crate) fn packet(handle: u64, flow: u32, len: u32) -> Packet {
    Packet { handle, flow, len, src: flow, dst: flow, ..Packet::default() }
}

/// Handles of the packets that leave at once, in order.
pub(crate) fn drain(queue: &mut Queue<Interpreted>, now: u64) -> Vec<u64> {
    std::iter::from_fn(|| queue.dequeue(now)).map(|sent| sent.handle).collect()
}

pub(crate) const ALL: [&str; 25] = [
    "blue",
    "cake",
    "cobalt",
    "codel",
    "drr",
    "dualpi2",
    "edf",
    "fifo",
    "fq",
    "fq_codel",
    "fq_pie",
    "hpfq",
    "htb",
    "lstf",
    "objective",
    "pace",
    "pfabric",
    "pie",
    "priority",
    "proportional_fair",
    "red",
    "sfq",
    "srpt",
    "tbf",
    "wfq",
];

/// If this fails, a discipline takes more than thirty lines, from its parameters to END, without comments and empty
/// lines. Each part of a composed queue counts by itself.
#[test]
fn disciplines_fit_in_thirty_lines() {
    for name in ALL {
        let text = std::fs::read_to_string(library().join(format!("{name}.weft"))).expect("it is there");
        let counts = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("--");
        let lines: Vec<&str> = text.lines().filter(counts).collect();
        let queues: Vec<&[&str]> = lines.split_inclusive(|line| *line == "END;").collect();
        for queue in queues {
            let begins = queue.iter().position(|line| line.ends_with(" AS")).expect("it is a queue");
            let n = queue.len() - begins;
            assert!(n <= 30, "{name}: {n} lines behind {}", queue[begins]);
        }
    }
    // The list names all queues of the library.
    let files = std::fs::read_dir(library()).expect("the library is there").count();
    assert_eq!(files, ALL.len());
}

/// If this fails, some queue of the library loses or duplicates packets, or its limit does not hold.
#[test]
fn each_packet_leaves_once() {
    let n: u64 = std::env::var("WEFT_QUEUE_EVENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    for name in ALL {
        let mut queue = queue(name, "");
        let max = u64::from(queue.program().packets_max());
        let mut rng = Rng::from_seed(3);
        let (mut now, mut gone) = (0, vec![false; n as usize]);
        let mut leave = |handle: u64| {
            assert!(!std::mem::replace(&mut gone[handle as usize], true), "{name}: {handle} twice")
        };
        for handle in 0..n {
            now += rng.below(200_000) as u64;
            let packet = Packet {
                ecn: rng.below(4) as u8,
                dscp: rng.below(64) as u8,
                class: rng.below(9) as u32,
                remaining: rng.below(1 << 20) as u64,
                slack_ns: rng.below(1 << 30) as i64,
                deadline_ns: now + rng.below(1 << 28) as u64,
                ..packet(handle, rng.below(40) as u32, 64 + rng.below(1450) as u32)
            };
            queue.enqueue(&packet, now);
            // Slightly slower than the arrivals, so that the queue fills.
            if rng.below(100) < 97 {
                now += 10;
                queue.dequeue(now).into_iter().for_each(|sent| leave(sent.handle));
            }
            while let Some(dropped) = queue.poll_dropped() {
                leave(dropped.handle);
            }
            let counts = queue.counts();
            assert!(counts.is_conserved() && counts.queued <= max, "{name}: {counts:?}");
        }
        // The remaining packets leave in time: none is stuck.
        for _ in 0..4_000_000 {
            match queue.dequeue(now) {
                Some(sent) => leave(sent.handle),
                None if queue.counts().queued == 0 => break,
                None => {
                    now = queue
                        .poll_timeout()
                        .unwrap_or_else(|| panic!("{name}: {:?} are stuck", queue.counts()))
                        .max(now + 1)
                }
            }
            while let Some(dropped) = queue.poll_dropped() {
                leave(dropped.handle);
            }
        }
        assert_eq!(queue.counts().queued, 0, "{name}");
        assert!(gone.iter().all(|gone| *gone), "{name}: some never left");
        // Each drop and mark is counted for its source line.
        let counted: u64 = queue.lines().iter().map(|line| line.packets).sum();
        assert_eq!(counted, queue.counts().dropped() + queue.counts().marked, "{name}: {:?}", queue.lines());
    }
}

/// If this fails, a queue exceeds its limit.
#[test]
fn overflow_is_dropped() {
    let mut queue = queue("fifo", " (packets = 3)");
    (0..5).for_each(|handle| queue.enqueue(&packet(handle, 0, 100), 0));
    let dropped: Vec<u64> =
        std::iter::from_fn(|| queue.poll_dropped()).map(|dropped| dropped.handle).collect();
    assert_eq!((dropped, drain(&mut queue, 1)), (vec![3, 4], vec![0, 1, 2]));
}

/// If this fails, a flow of small packets gets less than one of large packets, or one flow runs ahead of another.
#[test]
fn drr_is_fair_within_a_quantum() {
    for (name, slack) in [("drr", 2 * 1514), ("fq", 2 * 1514), ("wfq", 2 * 1514), ("hpfq", 4 * 1514)] {
        let mut queue = queue(name, "");
        let lens = [64, 300, 700, 1514];
        let mut sent = [0_u64; 4];
        let mut handle = 0;
        let mut refill = |queue: &mut Queue<Interpreted>, flow: usize| {
            handle += 1;
            queue.enqueue(&packet(handle << 8 | flow as u64, flow as u32, lens[flow]), 0);
        };
        for flow in 0..4 {
            (0..100).for_each(|_| refill(&mut queue, flow));
        }
        for _ in 0..20_000 {
            let left = queue.dequeue(1).expect("all flows have packets");
            let flow = (left.handle & 0xff) as usize;
            sent[flow] += u64::from(left.len);
            refill(&mut queue, flow);
            let spread = sent.iter().max().unwrap() - sent.iter().min().unwrap();
            assert!(spread <= slack, "{name}: {sent:?}");
        }
    }
}

/// If this fails, a host with many flows gets more than one with few, or flows of a host are unequal.
#[test]
fn hosts_share_before_their_flows() {
    const LEN: u32 = 1000;
    let mut queue = queue("hpfq", "");
    // Host 0 has one flow, host 1 has three.
    let hosts = [0, 1, 1, 1];
    let add = |queue: &mut Queue<Interpreted>, flow: u32| {
        let host = hosts[flow as usize];
        queue.enqueue(&Packet { src: host, ..packet(flow.into(), flow, LEN) }, 0);
    };
    (0..4).for_each(|flow| (0..50).for_each(|_| add(&mut queue, flow)));
    let mut sent = [0_u64; 4];
    for _ in 0..20_000 {
        let left = queue.dequeue(1).expect("all flows have packets");
        sent[left.handle as usize] += 1;
        add(&mut queue, left.handle as u32);
        let [own, others @ ..] = sent;
        let of_many = others.iter().sum::<u64>();
        assert!(own.abs_diff(of_many) <= 1, "hosts: {sent:?}");
        let (most, least) = (others.iter().max().unwrap(), others.iter().min().unwrap());
        assert!(most - least <= 1, "flows of a host: {sent:?}");
    }
}

/// If this fails, flows do not take turns by packets, or drops do not hit the longest flow.
#[test]
fn sfq_drops_from_the_longest() {
    let mut queue = queue("sfq", " (packets = 100)");
    for nth in 0..90 {
        // One of three flows holds ten times as much as each of the others.
        let flow = if nth % 12 < 10 { 0 } else { nth % 12 - 9 };
        queue.enqueue(&packet(u64::from(flow), flow, 500), 0);
    }
    (0..20).for_each(|_| queue.enqueue(&packet(1, 1, 500), 0));
    let dropped: Vec<u64> = std::iter::from_fn(|| queue.poll_dropped()).map(|of| of.handle).collect();
    assert_eq!(dropped, vec![0; 10], "the longest loses");
    let order = drain(&mut queue, 1);
    for turn in order[..21].chunks(3) {
        let mut turn = turn.to_vec();
        turn.sort_unstable();
        assert_eq!(turn, [0, 1, 2], "{order:?}");
    }
}

/// If this fails, BLUE does not learn from overflow and idleness: its drop rate does not rise with overflow, or does
/// not fall with idleness.
#[test]
fn blue_adapts_to_full_and_idle() {
    let mut link = TestLink::new(queue("blue", " (full = 80, packets = 100)"), 10_000_000);
    let mut now = 0;
    let mut offer = |link: &mut TestLink, n: u64, gap: u64| {
        let before = link.queue.counts();
        for handle in 0..n {
            now += gap;
            link.offer(&packet(handle, 1, 1250), now);
        }
        let after = link.queue.counts();
        let share = |now: u64, before: u64| (now - before) as f64 / n as f64;
        (
            share(after.dropped_enqueue, before.dropped_enqueue),
            share(after.dropped_overflow, before.dropped_overflow),
        )
    };
    // Twice the rate: first it overflows, then half of the packets is dropped on arrival.
    let (_, full_at_first) = offer(&mut link, 2_000, MS / 2);
    offer(&mut link, 20_000, MS / 2);
    let (early, full) = offer(&mut link, 2_000, MS / 2);
    assert!(
        full_at_first > 0.3 && full < 0.05 && (0.4..0.6).contains(&early),
        "{full_at_first} {full} {early}"
    );
    // A tenth of the rate: the queue is idle, and the drop rate falls.
    offer(&mut link, 4_000, 10 * MS);
    let (early, full) = offer(&mut link, 1_000, 10 * MS);
    assert!(early < 0.01 && full == 0.0, "{early} {full}");
}

/// If this fails, the least recently served flow is not served first, or old service is not forgotten.
#[test]
fn least_served_goes_first() {
    let mut queue = queue("proportional_fair", "");
    let add = |queue: &mut Queue<Interpreted>, user: u32, len: u32, now: u64| {
        queue.enqueue(&packet(user.into(), user, len), now);
    };
    // Both always have packets: they share bytes, although one's packets are five times as long.
    let lens = [300, 1500];
    for user in 0..2 {
        (0..20).for_each(|_| add(&mut queue, user, lens[user as usize], 0));
    }
    let mut sent = [0_u64; 2];
    for _ in 0..3_000 {
        let left = queue.dequeue(1).expect("both have packets");
        sent[left.handle as usize] += u64::from(left.len);
        add(&mut queue, left.handle as u32, left.len, 1);
        assert!(sent[0].abs_diff(sent[1]) <= 2 * 1500, "{sent:?}");
    }
    // One flow was served alone; the other goes first until it has as much, or until that service is forgotten.
    let ahead = |pause: u64| {
        let mut queue = self::queue("proportional_fair", "");
        (0..10).for_each(|_| add(&mut queue, 0, 1000, 1));
        assert_eq!(drain(&mut queue, 2).len(), 10);
        for _ in 0..20 {
            add(&mut queue, 0, 1000, 2 + pause);
            add(&mut queue, 1, 1000, 2 + pause);
        }
        drain(&mut queue, 3 + pause).iter().take_while(|user| **user == 1).count()
    };
    assert!((9..=11).contains(&ahead(0)), "{}", ahead(0));
    assert!(ahead(10 * S) <= 1, "{}", ahead(10 * S));
}

/// If this fails, shares do not follow weights.
#[test]
fn weights_share_in_proportion() {
    let mut queue = queue("wfq", "");
    let mut sent = [0_u64; 3];
    let add = |queue: &mut Queue<Interpreted>, flow: u32| {
        let weight = [1, 2, 5][flow as usize];
        queue.enqueue(&Packet { class: weight, ..packet(u64::from(flow), flow, 1000) }, 0);
    };
    (0..3).for_each(|flow| (0..50).for_each(|_| add(&mut queue, flow)));
    for _ in 0..8_000 {
        let left = queue.dequeue(1).expect("all flows have packets");
        sent[left.handle as usize] += 1;
        add(&mut queue, left.handle as u32);
    }
    assert!((999..=1001).contains(&sent[0]) && (1999..=2001).contains(&sent[1]), "{sent:?}");
}

/// If this fails, a packet leaves before a more urgent one.
#[test]
fn rank_order_has_no_inversion() {
    let mut rng = Rng::from_seed(5);
    type Urgency = fn(&Packet) -> u64;
    let urgency: [(&str, Urgency); 4] = [
        ("priority", |packet| u64::from(packet.class)),
        ("srpt", |packet| packet.remaining),
        ("edf", |packet| packet.deadline_ns),
        ("lstf", |packet| packet.slack_ns as u64),
    ];
    for (name, of) in urgency {
        let mut queue = queue(name, "");
        let mut waiting: Vec<Packet> = Vec::new();
        for handle in 0..4_000 {
            if waiting.len() < 900 && rng.percent(60) {
                let new = Packet {
                    class: rng.below(8) as u32,
                    remaining: rng.below(1 << 24) as u64,
                    deadline_ns: 1_000 + rng.below(1 << 20) as u64,
                    slack_ns: rng.below(1 << 20) as i64,
                    ..packet(handle, rng.below(50) as u32, 100)
                };
                queue.enqueue(&new, 7);
                waiting.push(new);
            } else if let Some(left) = queue.dequeue(7) {
                let at =
                    waiting.iter().position(|known| known.handle == left.handle).expect("it was waiting");
                let first = waiting.iter().map(of).min();
                assert_eq!(Some(of(&waiting[at])), first, "{name}");
                let earlier = waiting[..at].iter().any(|known| Some(of(known)) == first);
                assert!(!earlier, "{name}: equals leave as they came");
                waiting.remove(at);
            }
        }
    }
}

/// If this fails, packets are lost or reordered after the queue was empty, when its slots are reused.
#[test]
fn burst_leaves_by_rank() {
    let mut rng = Rng::from_seed(8);
    for name in ["srpt", "priority"] {
        let mut queue = queue(name, " (packets = 5000)");
        for burst in [3, 2_000, 70, 5_000] {
            let new = |handle| Packet {
                class: rng.below(8) as u32,
                remaining: rng.below(1_000) as u64,
                ..packet(handle, 0, 100)
            };
            let mut waiting: Vec<Packet> = (0..burst).map(new).collect();
            waiting.iter().for_each(|packet| queue.enqueue(packet, 7));
            waiting.sort_by_key(|known| if name == "srpt" { known.remaining } else { known.class.into() });
            let left: Vec<u64> = core::iter::from_fn(|| queue.dequeue(7)).map(|sent| sent.handle).collect();
            assert_eq!(left, waiting.iter().map(|known| known.handle).collect::<Vec<_>>(), "{name}");
        }
    }
}

/// If this fails, a full queue drops urgent packets instead of those with the last rank.
#[test]
fn full_queue_drops_last_rank() {
    type Rank = fn(&Packet) -> u64;
    let ranks: [(&str, Rank); 3] = [
        ("srpt", |packet| packet.remaining),
        ("edf", |packet| packet.deadline_ns),
        ("lstf", |packet| packet.slack_ns as u64),
    ];
    for (name, rank) in ranks {
        let mut rng = Rng::from_seed(21);
        let mut queue = queue(name, " (packets = 40)");
        let mut waiting: Vec<(u64, u64)> = Vec::new();
        for handle in 0..20_000 {
            if rng.percent(45) {
                let first = waiting.iter().min().copied();
                assert_eq!(
                    queue.dequeue(7).map(|sent| sent.handle),
                    first.map(|(_, handle)| handle),
                    "{name}"
                );
                waiting.retain(|known| Some(*known) != first);
                continue;
            }
            // Few ranks, so many are equal: among those, the last to arrive is dropped.
            let n = 1_000 + rng.below(60) as u64;
            let new = Packet { remaining: n, deadline_ns: n, slack_ns: n as i64, ..packet(handle, 0, 100) };
            queue.enqueue(&new, 7);
            waiting.push((rank(&new), handle));
            if waiting.len() > 40 {
                let last = waiting.iter().max().copied();
                assert_eq!(
                    queue.poll_dropped().map(|dropped| dropped.handle),
                    last.map(|(_, handle)| handle)
                );
                waiting.retain(|known| Some(*known) != last);
            }
        }
    }
}

/// If this fails, LSTF does not subtract the sojourn time from the slack.
#[test]
fn waiting_uses_up_slack() {
    let mut queue = queue("lstf", "");
    queue.enqueue(&Packet { slack_ns: 5_000, ..packet(0, 0, 100) }, 1_000);
    assert!(queue.dequeue(3_500).is_some());
    assert_eq!(queue.last_sent(Field::Slack), Some(2_500));
}

/// If this fails, pFabric sends from another flow than that with the least remaining, another packet than its earliest,
/// or drops from another flow than that with the most remaining.
#[test]
fn pfabric_program_matches_its_paper() {
    let mut rng = Rng::from_seed(11);
    let mut queue = queue("pfabric", " (buffer = '36 KB')");
    let mut waiting: Vec<Packet> = Vec::new();
    let least =
        |waiting: &[Packet], flow: u32| waiting.iter().filter(|p| p.flow == flow).map(|p| p.remaining).min();
    for handle in 0..20_000 {
        if rng.percent(55) {
            let new =
                Packet { remaining: rng.below(1 << 16) as u64, ..packet(handle, rng.below(12) as u32, 1500) };
            queue.enqueue(&new, 0);
            waiting.push(new);
            while let Some(dropped) = queue.poll_dropped() {
                let at =
                    waiting.iter().position(|known| known.handle == dropped.handle).expect("it was waiting");
                let most = waiting.iter().filter_map(|p| least(&waiting, p.flow)).max();
                assert_eq!(least(&waiting, waiting[at].flow), most, "the flow with the most left loses");
                let last = waiting.iter().rposition(|p| p.flow == waiting[at].flow);
                assert_eq!((Some(at), dropped.why), (last, DropCause::Overflow), "its last packet");
                waiting.remove(at);
            }
            assert!(queue.counts().queued_bytes <= 36 << 10);
        } else if let Some(left) = queue.dequeue(0) {
            let at = waiting.iter().position(|known| known.handle == left.handle).expect("it was waiting");
            let fewest = waiting.iter().filter_map(|p| least(&waiting, p.flow)).min();
            assert_eq!(least(&waiting, waiting[at].flow), fewest, "the flow with the least left goes");
            let first = waiting.iter().position(|p| p.flow == waiting[at].flow);
            assert_eq!(Some(at), first, "its earliest packet");
            waiting.remove(at);
        }
    }
}

/// If this fails, shaping is inaccurate: the rate over a second is wrong by more than a thousandth, or a burst is too
/// large.
#[test]
fn token_bucket_keeps_rate() {
    let mut link = TestLink::new(queue("tbf", " (rate = '10 Mbit/s', burst = '15000 B')"), 1_000_000_000);
    for handle in 0..4_000 {
        link.offer(&packet(handle, 0, 1250), handle * MS / 2);
    }
    link.run(4 * S);
    let within =
        |from: u64, to: u64| link.sent.iter().filter(|(at, _)| (from..to).contains(at)).count() as f64 * 1e4;
    let rate = within(S, 2 * S);
    assert!((rate - 1e7).abs() <= 1e4, "{rate} bit/s");
    assert!(within(0, 100_000) <= 13.0 * 1e4, "a burst is 15000 bytes, and the packet that ends it");
}

/// The rates of HTB classes in bits per second. Each class sends 1250-byte packets at its rate for ten seconds.
fn rates_of_classes(args: &str, packets_per_s: &[(u32, u64)]) -> Vec<f64> {
    let mut link = TestLink::new(queue("htb", args), 1_000_000_000);
    let mut events: Vec<(u64, u32)> = Vec::new();
    for (class, per_s) in packets_per_s {
        // Classes do not send at the same times.
        events.extend((0..per_s * 10).map(|nth| (nth * S / per_s + u64::from(*class), *class)));
    }
    events.sort_unstable();
    for (now, class) in events {
        link.offer(&Packet { class, ..packet(class.into(), class, 1250) }, now);
    }
    link.run(10 * S);
    // The first second is left out: it has bursts, and fills the queue.
    let rate = |class: u32| {
        let sent = link.sent.iter().filter(|(at, sent)| *at >= S && sent.handle == u64::from(class)).count();
        sent as f64 * 1e4 / 9.0
    };
    packets_per_s.iter().map(|(class, _)| rate(*class)).collect()
}

fn assert_rates(rates: &[f64], expected_mbit: &[f64]) {
    for (rate, expected) in rates.iter().zip(expected_mbit) {
        assert!((rate / 1e6 - expected).abs() <= 0.03 * expected + 0.02, "{rates:?}, not {expected_mbit:?}");
    }
}

/// If this fails, a class does not get its assured rate when all classes are overloaded, under either parent and with
/// any load of the others.
#[test]
fn class_gets_assured_rate() {
    let args = " (rate = '10 Mbit/s', per_parent = 2, parent_rate_0 = '6 Mbit/s', parent_rate_1 = '2 Mbit/s', \
                parent_rate_2 = '1 Mbit/s', parent_rate_3 = '1 Mbit/s', rate_0 = '4 Mbit/s', rate_1 = '2 Mbit/s', \
                rate_2 = '1.5 Mbit/s', rate_3 = '500 kbit/s', rate_4 = '500 kbit/s', rate_5 = '500 kbit/s', \
                rate_6 = '700 kbit/s', rate_7 = '300 kbit/s')";
    // The second class of each parent sends four times as much as the first.
    let loads: Vec<(u32, u64)> = (0..8).map(|class| (class, [500, 2_000][class as usize % 2])).collect();
    let rates = rates_of_classes(args, &loads);
    assert_rates(&rates, &[4.0, 2.0, 1.5, 0.5, 0.5, 0.5, 0.7, 0.3]);
    let all = rates.iter().sum::<f64>();
    assert!((all - 1e7).abs() < 2e4, "the link is busy, and no more: {all}");
}

/// If this fails, unused rate is lost, or borrowers do not share it by their rates, first within their parent and then
/// among parents.
#[test]
fn idle_class_lends_in_proportion() {
    let args = " (rate = '10 Mbit/s', parent_rate_0 = '4 Mbit/s', parent_rate_1 = '2 Mbit/s', \
                rate_0 = '1 Mbit/s', rate_1 = '500 kbit/s', rate_2 = 0)";
    // A single class gets the whole link, although its assured rate is 0.
    assert_rates(&rates_of_classes(args, &[(2, 2_000)]), &[10.0]);
    // Two classes of one parent share 2 to 1, and use everything.
    assert_rates(
        &rates_of_classes(args, &[(0, 2_000), (1, 2_000), (2, 2_000)]),
        &[20.0 / 3.0, 10.0 / 3.0, 0.0],
    );
    // One class of each of two parents: they share by their parents' rates, whatever their own.
    assert_rates(&rates_of_classes(args, &[(1, 2_000), (4, 2_000)]), &[20.0 / 3.0, 10.0 / 3.0]);
    // A class with less demand than its assured rate gets all of it, and lends the rest.
    let rates = rates_of_classes(args, &[(0, 30), (1, 2_000), (4, 2_000)]);
    assert_rates(&rates, &[0.3, 20.0 / 3.0 - 0.3, 10.0 / 3.0]);
}

/// If this fails, a class that was alone for long, or at its ceiling, is ahead of or behind others when they arrive:
/// borrowed rate is not paid back, and rate held back by a ceiling is not made up for.
#[test]
fn class_forgets_debt_when_idle() {
    let args = " (rate = '10 Mbit/s', rate_0 = '3 Mbit/s', ceil_0 = '4 Mbit/s', \
                rate_1 = '1 Mbit/s', rate_2 = '4 Mbit/s')";
    let mut link = TestLink::new(queue("htb", args), 1_000_000_000);
    for nth in 0..10_000 {
        // Classes 0 and 1 are alone for five seconds; then class 2 arrives.
        for class in 0..if nth < 5_000 { 2 } else { 3 } {
            link.offer(&Packet { class, ..packet(class.into(), class, 1250) }, nth * MS);
        }
    }
    let rates = |from: u64, to: u64| {
        [0, 1, 2].map(|class| {
            let sent = link.sent.iter().filter(|(at, sent)| (from..to).contains(at) && sent.handle == class);
            sent.count() as f64 * 1e4 * 1e9 / (to - from) as f64
        })
    };
    assert_rates(&rates(S, 5 * S), &[4.0, 6.0, 0.0]);
    assert_rates(&rates(5 * S, 5 * S + 500 * MS), &[3.75, 1.25, 5.0]);
    assert_rates(&rates(6 * S, 10 * S), &[3.75, 1.25, 5.0]);
}

/// If this fails, a class or a parent exceeds its ceiling when others leave room, or the excess is lost to classes that
/// could use it.
#[test]
fn class_and_parent_ceilings_hold() {
    let args = " (rate = '10 Mbit/s', parent_ceil_0 = '5 Mbit/s', ceil_1 = '1 Mbit/s')";
    assert_rates(&rates_of_classes(args, &[(1, 2_000)]), &[1.0]);
    assert_rates(&rates_of_classes(args, &[(0, 2_000), (1, 2_000)]), &[4.0, 1.0]);
    assert_rates(&rates_of_classes(args, &[(0, 2_000), (1, 2_000), (5, 2_000)]), &[4.0, 1.0, 5.0]);
    let rates = rates_of_classes(args, &[(0, 2_000), (1, 2_000), (4, 2_000), (5, 2_000)]);
    assert_rates(&rates, &[4.0, 1.0, 2.5, 2.5]);
    // In no second more than the ceiling plus a burst.
    let mut link = TestLink::new(queue("htb", args), 1_000_000_000);
    (0..10_000).for_each(|nth| link.offer(&Packet { class: 1, ..packet(nth, 1, 1250) }, nth * MS / 2));
    let sent: Vec<u64> = link.sent.iter().map(|(at, _)| *at).collect();
    let most = sent.iter().map(|from| sent.iter().filter(|at| (*from..from + S).contains(at)).count()).max();
    assert!(most.is_some_and(|most| (100..=100 + 14).contains(&most)), "{most:?}");
}

/// If this fails, a class that floods takes the room of others, whose packets are dropped on arrival.
#[test]
fn flooding_class_drops_its_own() {
    let mut link = TestLink::new(queue("htb", " (rate = '1 Mbit/s', packets = 100)"), 1_000_000_000);
    for nth in 0..2_000 {
        link.offer(&Packet { class: 5, ..packet(1, 1, 1250) }, nth * MS);
        if nth % 100 == 0 {
            link.offer(&Packet { class: 6, ..packet(0, 2, 1250) }, nth * MS);
        }
    }
    let dropped: Vec<u64> =
        std::iter::from_fn(|| link.queue.poll_dropped()).map(|gone| gone.handle).collect();
    assert!(dropped.len() > 1_000 && dropped.iter().all(|handle| *handle == 1));
}

/// If this fails, classes without a rate overtake those with one, or starve each other; or a class number beyond the
/// last one belongs to no parent.
#[test]
fn rateless_classes_share_leftovers() {
    let mut queue = queue("htb", " (rate_1 = 0, rate_2 = 0, parent_ceil_1 = '1 Mbit/s')");
    let class_of = |handle: u64| handle as u32 % 100;
    let mut now = S;
    let enqueue = |queue: &mut Queue<_>, n: u64, class: u32, now| {
        for nth in 0..n {
            let handle = nth * 100 + u64::from(class.min(99));
            queue.enqueue(&Packet { class, ..packet(handle, class, 1000) }, now);
        }
    };
    for class in [1, 2] {
        enqueue(&mut queue, 50, class, now);
    }
    let mut serve = |queue: &mut Queue<_>, n: usize| {
        let mut sent = Vec::new();
        for _ in 0..n {
            now += MS;
            sent.extend(queue.dequeue(now).map(|sent| class_of(sent.handle)));
        }
        sent
    };
    let first = serve(&mut queue, 40);
    let of = |sent: &[u32], class| sent.iter().filter(|of| **of == class).count();
    assert_eq!((of(&first, 1), of(&first, 2)), (20, 20), "{first:?}");
    enqueue(&mut queue, 20, 0, S + 40 * MS);
    assert_eq!(serve(&mut queue, 20), [0; 20], "whoever has a rate goes first");
    assert_eq!(of(&serve(&mut queue, 40), 1), 20);
    // 90 packets of 1000 bytes take 720 ms at the parent's ceiling.
    enqueue(&mut queue, 90, 4_000_000, S + 100 * MS);
    let n = of(&serve(&mut queue, 200), 99);
    assert!((25..45).contains(&n), "class 7 and above are the second parent's: {n}");
}

/// If this fails, a flow is paced faster than its rate, or one flow waits for another.
#[test]
fn pacing_is_per_flow() {
    let mut link = TestLink::new(queue("pace", " (rate = '1 Mbit/s')"), 1_000_000_000);
    (0..400).for_each(|handle| link.offer(&packet(handle % 4, (handle % 4) as u32, 1250), 0));
    link.run(S - 1);
    for flow in 0..4 {
        let sent = link.bytes(|sent| sent.handle == flow);
        assert!((123_750..=126_250).contains(&sent), "{flow}: {sent} bytes in a second");
    }
}

/// If this fails, a standing queue stays, or a short one is cut: the overload is a tenth for five seconds.
#[test]
fn managed_queue_stays_short() {
    for (name, wait_max) in [
        ("codel", 60 * MS),
        ("cobalt", 60 * MS),
        ("pie", 80 * MS),
        ("fq_codel", 60 * MS),
        ("fq_pie", 80 * MS),
        ("red", 60 * MS),
    ] {
        let mut link = TestLink::new(queue(name, ""), 10_000_000);
        // 0.9 of the rate: there is no standing queue, so no drops.
        let mut now = 0;
        for handle in 0..3_000 {
            now += 1_111_111;
            link.offer(&packet(handle, 1, 1250), now);
        }
        assert_eq!(link.queue.counts().dropped(), 0, "{name}");
        // An open loop does not back off: the controllers need some seconds to find the drop rate.
        for handle in 3_000..20_000 {
            now += 909_090;
            link.offer(&packet(handle, 1, 1250), now);
        }
        let late: Vec<u64> =
            link.sent.iter().rev().take(500).map(|(at, sent)| at - sent.arrived_ns).collect();
        let mean = late.iter().sum::<u64>() / late.len() as u64;
        assert!(mean < wait_max, "{name}: {} ms", mean / MS);
        assert!(link.queue.counts().dropped() > 500, "{name}: {:?}", link.queue.counts());
    }
}

/// Whether RED marks an arriving packet.
fn is_marked(red: &mut Queue<Interpreted>, now: u64) -> bool {
    let before = red.counts().marked;
    red.enqueue(&Packet { ecn: 1, ..packet(0, 1, 1250) }, now);
    red.counts().marked > before
}

/// RED with this average, and as many queued packets.
fn red_of(average: u64, args: &str) -> Queue<Interpreted> {
    let mut queue = queue("red", args);
    // Random draws that never drop by chance.
    queue.draw_from(|| 0.999_999);
    for _ in 0..10_000 {
        is_marked(&mut queue, S);
        if queue.counts().queued > average {
            queue.dequeue(S);
        }
    }
    assert_eq!(queue.counts().queued, average);
    queue
}

/// If this fails, RED's average does not decay while the link is idle as in Floyd and Jacobson's paper (section 11), as
/// if small packets arrived at an empty queue; or it is more than a tenth above that. Between two halvings it decays
/// linearly.
#[test]
fn red_average_decays_while_idle() {
    for (weight, args, packet_time) in [
        (8.0 / 4096.0, "", 800_000),
        (8.0 / 4096.0, ", packet_time = '1200 ns'", 1_200),
        (41.0 / 4096.0, ", weight = 0.01, packet_time = '12 ms'", 12 * MS),
        (205.0 / 4096.0, ", weight = 0.05", 800_000),
    ] {
        // None, some, one halving, and several of them.
        for share in [1.0, 0.9, 0.75, 0.6, 0.5, 0.35, 0.25, 0.1] {
            let idle = f64::ln(share) / f64::ln_1p(-weight) * packet_time as f64;
            let is_above = |high: f64| {
                let mut queue = red_of(100, &format!(" (low = {}, high = {high}{args})", high - 1.0));
                drain(&mut queue, 2 * S);
                is_marked(&mut queue, 2 * S + idle as u64)
            };
            // The arriving packet finds an empty queue.
            let average = 100.0 * share * (1.0 - weight);
            let label = format!("weight {weight}, {packet_time} ns, down to {share}");
            assert!(is_above(average * 0.97), "{label}: it sinks too fast");
            assert!(!is_above(average * 1.1), "{label}: it sinks too slowly");
        }
    }
}

/// If this fails, RED's mark probability does not follow its average, or marks are not spaced as evenly as by the
/// paper's second method (section 7): one in each 1/chance packets.
#[test]
fn red_spaces_marks_evenly() {
    for (average, args, chance) in [
        (10, "", 0.05),
        (6, "", 0.01),
        (14, "", 0.09),
        (40, " (low = 20, high = 60, most = 0.02)", 0.01),
        (150, " (low = 50, high = 250, most = 0.5)", 0.25),
    ] {
        let mut queue = red_of(average, args);
        let mut rng = Rng::from_seed(5);
        queue.draw_from(move || (rng.bits() >> 11) as f64 / (1_u64 << 53) as f64);
        let (mut gap, mut gaps) = (0, Vec::new());
        for _ in 0..100_000 {
            gap += 1;
            if is_marked(&mut queue, S) {
                gaps.push(std::mem::take(&mut gap));
            }
            queue.dequeue(S);
        }
        let gaps = &gaps[1..];
        let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
        let expected = (1.0 / chance + 1.0) / 2.0;
        assert!((mean / expected - 1.0).abs() < 0.05, "{average}{args}: one in {mean}, not in {expected}");
        let most = *gaps.iter().max().expect("some are") as f64;
        assert!(most <= 1.05 / chance + 1.0, "{average}{args}: {most} packets and none marked");
    }
}

/// If this fails, a queue drops packets of a trickle because of a burst that is long over, or because no deadlines are
/// set.
#[test]
fn trickle_after_idle_is_kept() {
    for name in ALL {
        let mut link = TestLink::new(queue(name, ""), 10_000_000);
        (0..100).for_each(|handle| link.offer(&packet(handle, 1, 1250), S));
        link.run(50 * S);
        let dropped = link.queue.counts().dropped();
        for nth in 0..50 {
            link.offer(&packet(100 + nth, 1, 1250), 50 * S + nth * 20 * MS);
        }
        link.run(60 * S);
        let counts = link.queue.counts();
        assert_eq!((counts.dropped(), counts.queued), (dropped, 0), "{name}: {counts:?}");
    }
}

/// If this fails, an ECN-capable packet is dropped although it could be marked.
#[test]
fn ecn_packet_is_marked_not_dropped() {
    for name in ["codel", "red", "fq_codel"] {
        let mut link = TestLink::new(queue(name, ""), 10_000_000);
        for handle in 0..900 {
            link.offer(&Packet { ecn: 1, ..packet(handle, 1, 1250) }, handle * MS / 2);
        }
        let counts = link.queue.counts();
        assert!(counts.marked > 0 && counts.dropped() == 0, "{name}: {counts:?}");
        assert!(link.sent.iter().any(|(_, sent)| sent.ecn == 3), "{name}");
    }
}

/// If this fails, L4S traffic queues behind classic traffic, or starves it.
#[test]
fn l4s_overtakes_classic_traffic() {
    let mut link = TestLink::new(queue("dualpi2", ""), 10_000_000);
    for handle in 0..6_000 {
        let is_l4s = handle % 3 == 0;
        link.offer(
            &Packet { ecn: u8::from(is_l4s), ..packet(handle, u32::from(is_l4s), 1250) },
            handle * 8 * MS / 10,
        );
    }
    let wait = |l4s: bool| {
        let waits: Vec<u64> = link
            .sent
            .iter()
            .filter(|(_, sent)| (sent.ecn != 0) == l4s)
            .map(|(at, sent)| at - sent.arrived_ns)
            .collect();
        (waits.iter().sum::<u64>() / waits.len() as u64, waits.len())
    };
    let ((l4s, _), (classic, n)) = (wait(true), wait(false));
    assert!(l4s < 3 * MS && classic > 2 * l4s && n > 1_000, "{l4s} and {classic} ns, {n}");
}

/// If this fails, hosts with many flows get more than hosts with few, or the shaper is off by more than a hundredth.
#[test]
fn cake_is_fair_to_hosts() {
    let mut link = TestLink::new(queue("cake", " (rate = '10 Mbit/s', overhead = '0 B')"), 1_000_000_000);
    for handle in 0..30_000_u64 {
        // Host 0 has one flow, host 1 has nine.
        let host = u32::from(handle % 10 != 0);
        let flow = (handle % 10) as u32;
        let now = handle * MS / 5;
        link.offer(&Packet { src: host, ..packet(u64::from(host), flow, 1000) }, now);
    }
    let now = 30_000 * MS / 5;
    let bytes = |host| link.bytes(|sent| sent.handle == host);
    let rate = (bytes(0) + bytes(1)) as f64 * 8.0 * 1e9 / now as f64;
    assert!((rate - 1e7).abs() < 1e5, "{rate}");
    // Host 0 has a demand of 4 Mbit/s, less than its half, and gets it.
    assert!((bytes(0) as f64 / bytes(1) as f64 - 4.0 / 6.0).abs() < 0.1, "{} and {}", bytes(0), bytes(1));
}

/// If this fails, the per-packet overhead of a line is not shaped, flows of a host are unequal, or the shares of tins
/// do not follow their weights.
#[test]
fn cake_counts_overhead() {
    // Each has twice as much demand as the link's rate.
    let sent = |overhead: &str, describe: &dyn Fn(u64) -> Packet| {
        let args = format!(" (rate = '10 Mbit/s', overhead = '{overhead} B')");
        let mut link = TestLink::new(queue("cake", &args), 1_000_000_000);
        for nth in 0..40_000 {
            link.offer(&describe(nth), nth * MS / 5);
        }
        let bytes = |handle| link.bytes(|sent| sent.handle == handle) as f64;
        [0, 1].map(bytes)
    };
    let seconds = 40_000.0 / 5_000.0;
    let [one, _] = sent("250", &|_| packet(0, 0, 250));
    assert!((one * 8.0 / seconds - 5e6).abs() < 1e5, "half of the rate is overhead: {one}");
    let [many, few] = sent("0", &|nth| packet(u64::from(nth % 4 == 3), u32::from(nth % 4 == 3), 1500));
    assert!((many / few - 1.0).abs() < 0.05, "flows of a host: {many} and {few}");
    let [bulk, usual] = sent("0", &|nth| {
        let (flow, dscp) = ((nth % 2) as u32, if nth % 2 == 0 { 8 } else { 0 });
        Packet { dscp, ..packet(flow.into(), flow, 1500) }
    });
    assert!((usual / bulk - 16.0).abs() < 0.5, "tins: {bulk} and {usual}");
}

/// If this fails, a change of the queue loses or duplicates packets, or forgets their arrival times.
#[test]
fn queue_update_keeps_backlog() {
    let mut old = queue("fifo", "");
    for handle in 0..500 {
        old.enqueue(&packet(handle, (handle % 7) as u32, 500), handle * 1_000);
    }
    drain_some(&mut old, 100);
    let program = library_queue("fq_codel", " (packets = 300)");
    let mut new = Queue::new(program.clone(), Interpreted::new(program), 500_000, 1);
    let packets = old.take_all();
    assert!(packets.is_sorted_by_key(|(_, arrived)| *arrived) && packets.len() == 400);
    new.adopt(&packets);
    let (before, after) = (old.counts(), new.counts());
    assert_eq!((before.queued, before.taken, before.is_conserved()), (0, 400, true));
    assert_eq!((after.arrived, after.queued, after.dropped_overflow), (400, 300, 100), "{after:?}");
    let sent = new.dequeue(600_000).expect("there are packets");
    assert!(sent.arrived_ns < 500_000, "it keeps the time at which it came");
}

fn drain_some(queue: &mut Queue<Interpreted>, n: usize) {
    for _ in 0..n {
        assert!(queue.dequeue(490_000_000).is_some());
    }
}

/// If this fails, releases are late, or a link wakes without need: the queue must return its next poll time.
#[test]
fn past_send_time_waits_a_moment() {
    // An unsigned time would be centuries ahead: a bucket that starts full would never release.
    for hold in ["HOLD UNTIL now() - '1 s'", "HOLD FOR '-1 ms'", "HOLD FOR '0 ms'"] {
        let text = format!(
            "CREATE QUEUE it AS VAR asked BOOL; LIMIT 10 PACKETS ON OVERFLOW DROP TAIL; \
             ON DEQUEUE IF NOT asked THEN SET asked = TRUE; {hold}; END IF; SEND; END;"
        );
        let program = Arc::new(programs(&text).pop().expect("there is one"));
        let mut queue = Queue::new(program.clone(), Interpreted::new(program), 0, 1);
        queue.enqueue(&packet(1, 0, 100), 5);
        assert_eq!(queue.dequeue(7), None, "{hold}");
        assert_eq!(queue.poll_timeout(), Some(8), "{hold}");
        assert_eq!(drain(&mut queue, 8), [1], "{hold}");
    }
}

#[test]
fn empty_partition_blocks_no_other() {
    // An empty class at the front would take all turns of each dequeue, and the others would wait forever.
    let text = "CREATE QUEUE it AS PARTITION BY p.flow INDEX 3; ORDER PARTITIONS BY rank; \
                LIMIT 10 PACKETS ON OVERFLOW DROP TAIL; ON ACTIVATE SET rank = partition.index; ON EMPTY STAY; END;";
    let program = Arc::new(programs(text).pop().expect("there is one"));
    let mut queue = Queue::new(program.clone(), Interpreted::new(program), 0, 1);
    for handle in 0..9 {
        queue.enqueue(&packet(handle, handle as u32 % 3, 100), 0);
    }
    assert_eq!(drain(&mut queue, 0), [0, 3, 6, 1, 4, 7, 2, 5, 8]);
    queue.enqueue(&packet(9, 2, 100), 1);
    queue.enqueue(&packet(10, 0, 100), 1);
    assert_eq!(drain(&mut queue, 1), [10, 9]);
}

#[test]
fn next_poll_time_is_reported() {
    let mut queue = queue("tbf", " (rate = '1 Mbit/s', burst = '1250 B')");
    queue.enqueue(&packet(0, 0, 1250), 0);
    queue.enqueue(&packet(1, 0, 1250), 0);
    queue.enqueue(&packet(2, 0, 1250), 0);
    // The burst, and the packet that ends it.
    assert!(queue.dequeue(0).is_some() && queue.dequeue(1).is_some());
    assert_eq!((queue.dequeue(2), queue.poll_timeout()), (None, Some(10 * MS)));
    assert!(queue.dequeue(10 * MS - 1).is_none());
    assert!(queue.dequeue(10 * MS).is_some());
}
