//! Isolation: beside floods, a flow gets its demand up to its fair share, in every queue of the library that promises
//! it, and in compositions of them.

#![allow(clippy::disallowed_methods, reason = "how many runs there are may be said from outside")]

use super::queues::programs;
use std::sync::Arc;
use weft_core::hash::hash_word;
use weft_core::rng::Rng;
use weft_engine::queue::{Packet, Queue};
use weft_ir::queue::QueueProgram;
use weft_ir::queue::run::Interpreted;
use weft_sim::net::{FlowResult, OfferedFlow, offer};

const S: u64 = 1_000_000_000;
const LINK: u64 = 10_000_000;
/// How long each run measures.
const SECONDS: f64 = 1.5;

/// What a queue shares equally.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Share {
    /// Bytes between flows.
    Flows,
    /// Packets between flows.
    Packets,
    /// Bytes between hosts: by source, by destination, or both.
    Hosts { source: bool, destination: bool },
    /// Bytes between sources, and within each between its flows.
    Sources,
}

/// An outer queue, its arguments, and what it shares.
const OUTER: [(&str, &str, Share); 9] = [
    ("fq", "quantum = '{q} B'", Share::Flows),
    ("turns_by_objective", "quantum = '{q} B'", Share::Flows),
    ("wfq", "", Share::Flows),
    ("sfq", "", Share::Packets),
    ("cake_flows", "queues = 1024", Share::Flows),
    ("cake_hosts", "", Share::Hosts { source: true, destination: true }),
    ("cake_hosts", "destination = FALSE", Share::Hosts { source: true, destination: false }),
    ("cake_hosts", "source = FALSE", Share::Hosts { source: false, destination: true }),
    ("host_wfq", "", Share::Sources),
];

/// An inner queue, which holds the packets of one partition.
const INNER: [&str; 7] = [
    "fifo (packets = {p})",
    "codel (packets = {p})",
    "codel (target = '1 ms', interval = '10 ms', mtu = '0 B', packets = {p})",
    "cobalt (packets = {p})",
    "pie (packets = {p})",
    "by_objective (packets = {p})",
    "red (low = 50, high = 150, packets = {p})",
];

/// A shaper in front, slightly slower than the link, so that the shaper is the bottleneck.
const FRONT: [&str; 5] = [
    "",
    "tbf (rate = '9 Mbit/s', packets = {p}) EACH USING ",
    "tbf (rate = '9 Mbit/s') EACH USING ",
    "cake_shaper (rate = '9 Mbit/s', overhead = '0 B', mpu = '0 B', packets = 20000) EACH USING ",
    "priority (packets = 20000) EACH USING ",
];

/// Queues that break their promise.
const UNFAIR: &str = "
CREATE QUEUE returns_as_new AS
  PARTITION VAR deficit SIZE;
  PARTITION BY flow() HASH 1024;
  ORDER PARTITIONS BY rank BITS 1;
  LIMIT 10240 PACKETS ON OVERFLOW DROP HEAD OF PARTITION ORDER BY bytes DESC;
  ON ACTIVATE
    SET deficit = '1514 B';
    SET rank = 0;
  ON SELECT
    IF deficit > 0 THEN SERVE; END IF;
    SET deficit = deficit + '1514 B';
    SET rank = 1;
    NEXT;
  ON DEQUEUE
    SET deficit = deficit - p.len;
    SEND;
END;

CREATE QUEUE drops_what_comes AS
  PARTITION BY flow() HASH 1024;
  LIMIT 100 PACKETS ON OVERFLOW DROP TAIL;
  ON DEQUEUE
    ROTATE;
END;
";

fn program_of(declared: &str) -> Arc<QueueProgram> {
    // Do not import queues that others import.
    let imports = ["cake", "fifo", "fq_codel", "hpfq", "htb", "objective", "pie", "priority", "red", "sfq"];
    let imports: String =
        imports.iter().map(|name| format!("IMPORT 'library/queues/{name}.weft';\n")).collect();
    let text = format!("{imports}{UNFAIR}CREATE QUEUE it AS\n  {declared};\nEND;");
    let found = programs(&text).into_iter().find(|program| program.name == "it");
    Arc::new(found.expect("the queue is in the program"))
}

fn queue_of(declared: &str) -> Queue<Interpreted> {
    let program = program_of(declared);
    Queue::new(program.clone(), Interpreted::new(program), 0, 1)
}

/// A flow number in its own partition of 1024.
fn new_flow(taken: &mut Vec<u64>, rng: &mut Rng) -> u32 {
    loop {
        let flow = rng.within(&(1..=u64::from(u32::MAX)));
        let place = ((hash_word(flow) >> 32) * 1024) >> 32;
        if !taken.contains(&place) {
            taken.push(place);
            return flow as u32;
        }
    }
}

/// The max-min fair rates in bits per second: unused shares go to the others, by weight.
fn fair(demands: &[f64], weights: &[f64], link: f64) -> Vec<f64> {
    let mut got = vec![0.0; demands.len()];
    let mut open: Vec<usize> = (0..demands.len()).collect();
    let mut left = link;
    loop {
        let each = left / open.iter().map(|nth| weights[*nth]).sum::<f64>();
        let (content, greedy): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|nth| demands[**nth] <= each * weights[**nth]);
        for nth in &content {
            got[*nth] = demands[*nth];
            left -= demands[*nth];
        }
        if content.is_empty() || greedy.is_empty() {
            greedy.iter().for_each(|nth| got[*nth] = each * weights[*nth]);
            return got;
        }
        open = greedy;
    }
}

/// The promised rate of each flow, in bits per second.
fn promised(share: Share, flows: &[OfferedFlow], link: f64) -> Vec<f64> {
    let demands: Vec<f64> = flows.iter().map(|flow| flow.bits_per_s).collect();
    let of_host = |key: fn(&Packet) -> u32, flow: &OfferedFlow| {
        flows.iter().filter(|other| key(&other.packet) == key(&flow.packet)).count() as f64
    };
    match share {
        Share::Flows => fair(&demands, &vec![1.0; flows.len()], link),
        Share::Packets => {
            let lens: Vec<f64> = flows.iter().map(|flow| flow.packet.len.into()).collect();
            fair(&demands, &lens, link)
        }
        Share::Hosts { source, destination } => {
            let weight = |flow: &OfferedFlow| {
                let own = if source { of_host(|packet| packet.src, flow) } else { 1.0 };
                let other = if destination { of_host(|packet| packet.dst, flow) } else { 1.0 };
                1.0 / own.max(other)
            };
            fair(&demands, &flows.iter().map(weight).collect::<Vec<_>>(), link)
        }
        Share::Sources => {
            let mut hosts: Vec<u32> = flows.iter().map(|flow| flow.packet.src).collect();
            hosts.sort_unstable();
            hosts.dedup();
            let of = |host: u32| (0..flows.len()).filter(move |nth| flows[*nth].packet.src == host);
            let asked: Vec<f64> = hosts.iter().map(|host| of(*host).map(|nth| demands[nth]).sum()).collect();
            let shares = fair(&asked, &vec![1.0; hosts.len()], link);
            let mut got = vec![0.0; flows.len()];
            for (host, share) in hosts.iter().zip(shares) {
                let own: Vec<usize> = of(*host).collect();
                let asked: Vec<f64> = own.iter().map(|nth| demands[*nth]).collect();
                let each = fair(&asked, &vec![1.0; own.len()], share);
                own.iter().zip(each).for_each(|(nth, each)| got[*nth] = each);
            }
            got
        }
    }
}

/// Floods, and a flow with a demand below or near its share.
fn flows(rng: &mut Rng, share: Share, link: f64) -> Vec<OfferedFlow> {
    let mut taken = Vec::new();
    let lens = [64, 200, 300, 576, 1000, 1500];
    let n_floods = rng.pick(&[1, 1, 2, 3, 9]);
    let (one_source, one_destination) = (rng.chance(500), rng.chance(500));
    let mut flows: Vec<OfferedFlow> = (0..n_floods)
        .map(|nth| {
            let flow = new_flow(&mut taken, rng);
            let src = if one_source { 7 } else { 100 + nth };
            let dst = if one_destination { 8 } else { 200 + nth };
            let len = rng.pick(&[300, 1000, 1500, 1500]);
            let packet = Packet { flow, src, dst, len, ..Packet::default() };
            let bits_per_s = link * (0.8 + 2.0 * rng.unit());
            OfferedFlow { packet, bits_per_s, by_chance: rng.chance(500) }
        })
        .collect();
    let (src, dst) = (rng.pick(&[7, 9]), rng.pick(&[8, 10]));
    let packet =
        Packet { flow: new_flow(&mut taken, rng), src, dst, len: rng.pick(&lens), ..Packet::default() };
    flows.push(OfferedFlow { packet, bits_per_s: 1e12, by_chance: rng.chance(300) });
    let own = promised(share, &flows, link)[flows.len() - 1];
    let last = flows.len() - 1;
    flows[last].bits_per_s = own * rng.pick(&[0.02, 0.1, 0.3, 0.5, 0.8, 0.95, 1.0, 1.05, 1.6]);
    flows
}

/// The results of the flows, one per line.
fn report(flows: &[OfferedFlow], got: &[FlowResult], fair: &[f64]) -> String {
    let kbit = |bits: f64| format!("{:.0}", bits / 1e3);
    let row = |((flow, got), fair): ((&OfferedFlow, &FlowResult), &f64)| {
        let Packet { len, src, dst, .. } = flow.packet;
        let pace = if flow.by_chance { "by chance" } else { "evenly" };
        let has = kbit(got.sent_bytes as f64 * 8.0 / SECONDS);
        let (asks, fair, lost, n) = (kbit(flow.bits_per_s), kbit(*fair), got.dropped, got.offered);
        format!(
            "  {len} B {src}-{dst} {pace}: asks {asks}, is to have {fair}, has {has} kbit/s, lost {lost} of {n}\n"
        )
    };
    flows.iter().zip(got).zip(fair).map(row).collect()
}

/// A random composition of library queues that promise isolation, what it shares, and the rate of its shaper.
fn composed(nth: u64, rng: &mut Rng) -> (String, Share, f64) {
    let (outer, args, share) = OUTER[nth as usize % OUTER.len()];
    let (front, inner) = (rng.pick(&FRONT), rng.pick(&INNER));
    let below = if outer == "host_wfq" { "wfq (flows = 64) EACH USING " } else { "" };
    let declared = format!("{front}{outer} ({args}) EACH USING {below}{inner}")
        .replace("{p}", &rng.within(&(200..=2_000)).to_string())
        .replace("{q}", &rng.within(&(300..=3_000)).to_string())
        .replace(" ()", "");
    (declared, share, if front.contains("9 Mbit/s") { 9e6 } else { LINK as f64 })
}

/// The violations in the results of the flows; the last flow is the modest one. `aqm`: packets are dropped before the
/// queue is full. `is_hasty`: even packets of a flow with few of them.
fn faults(
    share: Share,
    flows: &[OfferedFlow],
    got: &[FlowResult],
    link: f64,
    (aqm, is_hasty): (bool, bool),
) -> Vec<String> {
    let last = flows.len() - 1;
    let came = |nth: usize| got[nth].offered as f64 * f64::from(flows[nth].packet.len) * 8.0 / SECONDS;
    let greedy = [&flows[..last], &[OfferedFlow { bits_per_s: 1e12, ..flows[last] }]].concat();
    let of_share = came(last) / promised(share, &greedy, link)[last];
    let fair = promised(share, flows, link);
    // Some packets may be queued at the beginning or the end.
    let room = |nth: usize| 3.0 * 1500.0 * 8.0 / SECONDS / fair[nth];
    let has = |nth: usize| got[nth].sent_bytes as f64 * 8.0 / SECONDS / fair[nth].min(came(nth));
    let mut faults = Vec::new();
    // A flow with half of its share as demand rarely has two packets queued.
    if of_share <= 0.5 && !is_hasty && got[last].dropped > 0 {
        faults.push("it loses packets".to_owned());
    }
    // To an AQM, a higher demand is an unresponsive flow: it may be dropped although there is room.
    let is_full = fair.iter().sum::<f64>() > 0.99 * link;
    // While the last flow has no packet queued, its host's other flows may get more.
    let is_known = is_full && !matches!(share, Share::Hosts { .. });
    for nth in 0..=last {
        let (least, most) = match (nth < last, aqm) {
            _ if nth == last && of_share <= 0.5 => (0.93, f64::MAX),
            (_, false) => (0.93, 1.15),
            (false, true) => (0.85, f64::MAX),
            (true, true) => (0.75, 1.3),
        };
        if !is_hasty && has(nth) < least - room(nth) {
            faults.push(format!("flow {nth} has less than its share"));
        }
        if !is_hasty && is_known && nth < last && has(nth) > most + room(nth) {
            faults.push(format!("flow {nth} has more than its share"));
        }
    }
    faults
}

/// Runs one composition. Returns the violations as text.
fn run(seed: u64, (declared, share, link): (&str, Share, f64)) -> Option<String> {
    let mut rng = Rng::from_seed(seed);
    let flows = flows(&mut rng, share, link);
    let window = (S / 2, S / 2 + (SECONDS * S as f64) as u64);
    let got = offer(&mut queue_of(declared), &flows, LINK, window, &mut rng);
    let how = (!declared.contains("fifo"), declared.contains("'1 ms'"));
    let faults = faults(share, &flows, &got, link, how);
    let report = report(&flows, &got, &promised(share, &flows, link));
    (!faults.is_empty()).then(|| format!("seed {seed}, {declared}: {}\n{report}", faults.join(", ")))
}

/// If this fails, a flow starves or loses packets beside a flood: an emptied partition counts as new again, hosts are
/// not distinguished, or an outer queue drops for an inner one.
#[test]
fn flood_spares_modest_flows() {
    let n: u64 = std::env::var("WEFT_QUEUE_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(18);
    let wrong: String = (0..n)
        .filter_map(|seed| {
            let (declared, share, link) = composed(seed, &mut Rng::from_seed(seed));
            run(seed, (&declared, share, link))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong}");
}

/// If this fails, the test above misses an unfair queue: one whose emptied partitions count as new (a past bug of CAKE
/// here), and one whose flows only share a FIFO.
#[test]
fn missing_isolation_is_detected() {
    let unfair = [("returns_as_new EACH USING cobalt", 36, 3), ("fifo", 9, 5), ("drops_what_comes", 9, 5)];
    for (queue, n, least) in unfair {
        let found = (0..n).filter_map(|seed| run(seed, (queue, Share::Flows, LINK as f64))).count();
        assert!(found >= least, "{queue}: {found} of {n}");
    }
}
