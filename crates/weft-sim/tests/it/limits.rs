//! Queue limits with packets of all sizes, and shapers whose packets take fractions of a nanosecond.

use super::queues::{drain, faults, packet, programs, queue};
use std::sync::Arc;
use weft_core::rng::Rng;
use weft_engine::queue::{Packet, Queue};
use weft_ir::queue::run::Interpreted;

const S: u64 = 1_000_000_000;

/// The last queue of a text.
fn last(text: &str) -> Queue<Interpreted> {
    let program = Arc::new(programs(text).pop().expect("there is a queue"));
    Queue::new(program.clone(), Interpreted::new(program), 0, 1)
}

/// Handles of the packets dropped since the last call.
fn dropped(queue: &mut Queue<Interpreted>) -> Vec<u64> {
    std::iter::from_fn(|| queue.poll_dropped()).map(|dropped| dropped.handle).collect()
}

/// If this fails, a packet larger than the limit takes all others with it, or the loop does not end.
#[test]
fn oversized_packet_is_dropped_alone() {
    let limits =
        ["DROP TAIL", "DROP HEAD"].map(|goes| format!("LIMIT 10 PACKETS, '10 KB' ON OVERFLOW {goes};"));
    let parts = "PARTITION BY flow() HASH 8; LIMIT '10 KB' ON OVERFLOW";
    let of_parts = ["DROP HEAD OF PARTITION", "DROP TAIL OF PARTITION ORDER BY bytes DESC UP TO 8"];
    for limit in limits.into_iter().chain(of_parts.map(|goes| format!("{parts} {goes};"))) {
        let mut queue = last(&format!("CREATE QUEUE it AS {limit} END;"));
        (0..5).for_each(|handle| queue.enqueue(&packet(handle, handle as u32, 1500), 0));
        queue.enqueue(&packet(5, 5, 20_000), 0);
        assert_eq!(dropped(&mut queue), [5], "{limit}");
        queue.enqueue(&packet(6, 0, 10_000), 0);
        assert!(!dropped(&mut queue).is_empty() && queue.counts().queued_bytes <= 10_240, "{limit}");
        assert!(queue.counts().is_conserved() && !drain(&mut queue, 1).is_empty(), "{limit}");
    }
}

/// A random queue with a limit, and the maximum packets and bytes that it holds.
fn limited(rng: &mut Rng) -> (String, u64, u64) {
    let packets = 1 + rng.below(40) as u64;
    let bytes = 2_000 + rng.below(20_000) as u64;
    let bound = rng.pick(&["{p} PACKETS", "{p} PACKETS, '{b} B'", "'{b} B'"]);
    let (most, most_bytes) = (
        if bound.contains("PACKETS") { packets } else { u64::MAX },
        if bound.contains("{b}") { bytes } else { u64::MAX },
    );
    let end = rng.pick(&["HEAD", "TAIL"]);
    let of = match rng.below(5) {
        0 => String::new(),
        n => {
            let by = ["", " ORDER BY bytes DESC", " ORDER BY rank DESC", " ORDER BY rank DESC"][n - 1];
            format!(" OF PARTITION{by}{}", rng.pick(&["", " UP TO 8"]))
        }
    };
    let order = rng.pick(&["", "ORDER PARTITIONS BY rank BITS 1;", "ORDER PARTITIONS BY rank;"]);
    let empty = rng.pick(&["", "ON EMPTY LEAVE;", "ON EMPTY SET rank = 1; STAY;"]);
    let held = rng
        .pick(&["", "ON SELECT IF now() % 3 = 0 THEN HOLD FOR '40 us'; END IF; SERVE;"])
        .replace("now()", "number(now())");
    let limit = format!("LIMIT {bound} ON OVERFLOW DROP {end}{of};");
    let limit = limit.replace("{p}", &packets.to_string()).replace("{b}", &bytes.to_string());
    let text = format!(
        "CREATE QUEUE it AS PARTITION BY flow() HASH 8; {order} {limit}\n\
         ON ACTIVATE SET rank = least(p.class, 1); {held}\n {empty} END;\n"
    );
    (text, most, most_bytes)
}

/// If this fails, a queue exceeds its limit, loses or duplicates packets, or drops more than necessary, with any mix of
/// empty partitions, waiting packets, and packets of length 0.
#[test]
fn limit_drops_the_least() {
    for seed in 0..150 {
        let mut rng = Rng::from_seed(seed);
        let (text, most, most_bytes) = limited(&mut rng);
        let mut queue = last(&text);
        let mut now = 0;
        for handle in 0..300 {
            now += rng.below(30_000) as u64;
            let len = rng.pick(&[0, 40, 1500, 1500, 9_000, 30_000]);
            let packet = Packet { class: rng.below(3) as u32, ..packet(handle, rng.below(12) as u32, len) };
            let before = queue.counts();
            queue.enqueue(&packet, now);
            let (counts, gone) = (queue.counts(), dropped(&mut queue));
            let what = format!("seed {seed}, {handle}: {text}{counts:?}");
            assert!(
                counts.is_conserved() && counts.queued <= most && counts.queued_bytes <= most_bytes,
                "{what}"
            );
            if u64::from(len) > most_bytes {
                assert_eq!(gone, [handle], "{what}");
            } else if before.queued < most && before.queued_bytes + u64::from(len) <= most_bytes {
                assert_eq!(gone, [], "{what}");
            } else {
                assert!(counts.queued > 0, "{what}");
            }
            if rng.percent(30) {
                queue.dequeue(now);
            }
        }
    }
}

/// If this fails, a shaper drops packets for which the inner queue has room; or the outer limit drops from another
/// partition than the largest.
#[test]
fn shaper_adds_no_inner_limit() {
    let declared = |limit: &str| {
        format!(
            "IMPORT 'library/queues/fq_codel.weft';\nIMPORT 'library/queues/tbf.weft';\n\
             CREATE QUEUE it AS tbf (packets = 10) EACH USING fq_codel (packets = 100); {limit} END;"
        )
    };
    let fill = |limit: &str, sparse: &[u64]| {
        let mut queue = last(&declared(limit));
        for handle in 0..200 {
            let flow = if sparse.contains(&handle) { 2 } else { 1 };
            queue.enqueue(&packet(handle, flow, 1500), handle);
        }
        let counts = queue.counts();
        (counts.queued, dropped(&mut queue))
    };
    let (queued, gone) = fill("", &[0, 150, 199]);
    assert!((50..=100).contains(&queued), "fq_codel has the limit: {queued}");
    assert!(gone.iter().all(|handle| ![0, 150, 199].contains(handle)), "{gone:?}");
    let (queued, gone) = fill("LIMIT 20 PACKETS ON OVERFLOW DROP TAIL;", &[0, 150, 199]);
    assert_eq!(queued, 20);
    assert!(gone.iter().all(|handle| ![0, 150, 199].contains(handle)), "{gone:?}");
    // The total limit is the sum of the inner queues' limits.
    let of_many = "CREATE QUEUE few AS LIMIT 7 PACKETS ON OVERFLOW DROP TAIL; END;
        CREATE QUEUE shaper AS LIMIT 3 PACKETS ON OVERFLOW DROP TAIL; END;
        CREATE QUEUE it AS shaper EACH USING few; END;";
    assert_eq!(last(of_many).program().packets_max(), 7);
}

/// If this fails, a shaper is too fast with fractions of a nanosecond: 64 bytes at 100 Gbit/s take 5.12 ns.
#[test]
fn rate_is_exact_below_nanoseconds() {
    let rate = "rate = '100 Gbit/s'";
    for (name, args) in [
        ("tbf", format!(" ({rate}, burst = '64 B')")),
        ("pace", format!(" ({rate})")),
        ("cake", format!(" ({rate}, overhead = '0 B', mpu = '0 B')")),
        (
            "htb",
            format!(
                " (rate = '1000 Gbit/s', ceil_0 = '100 Gbit/s', {})",
                "parent_rate_0 = 0, burst = '64 B'"
            ),
        ),
    ] {
        let mut queue = queue(name, &args);
        let n = 4_000;
        let (mut now, mut came) = (S, 0);
        for _ in 0..n {
            while came < 100 || queue.counts().queued < 50 {
                queue.enqueue(&packet(came, 1, 64), now);
                came += 1;
            }
            while queue.dequeue(now).is_none() {
                now = queue.poll_timeout().expect("it waits").max(now + 1);
            }
        }
        let each = (now - S) as f64 / f64::from(n);
        assert!((each - 5.12).abs() < 0.02, "{name}: {each} ns a packet");
    }
}

/// If this fails, a queue of the library accepts senseless arguments.
#[test]
fn senseless_argument_is_refused() {
    let senseless = "
        blue (full = 0); blue (up = 1.5); blue (freeze = -'1 s'); cake (rate = 0);
        cake (overhead = '1 KB'); cake (mpu = -'1 B'); cake (atm = TRUE, ptm = TRUE); cake (queues = 9);
        cobalt (target = '0 s'); cobalt (full = 0); cobalt (interval = '1 ms'); codel (target = '200 ms');
        codel (mtu = -'1 B'); drr (quantum = '0 B'); dualpi2 (target = '0 s'); dualpi2 (alpha = -1.0);
        dualpi2 (step = '0 s'); edf (packets = 0); fifo (packets = 0); fifo (packets = -1);
        fq (quantum = '0 B'); fq_codel (quantum = '0 B'); fq_codel (target = '1 s');
        fq_pie (target = -'1 s'); hpfq (hosts = 0); hpfq (flows = 7); htb (rate = 0); htb (per_parent = 0);
        htb (burst = '0 B'); htb (ceil_1 = -1); lstf (packets = 0); objective (weight = 0);
        objective (target = '1 s'); pace (rate = 0); pfabric (buffer = '0 B'); pie (target = '0 s');
        pie (beta = -0.5); priority (packets = 0); proportional_fair (half = '0 s');
        red (low = 15, high = 5); red (most = 2.0); red (weight = 0); red (packet_time = '0 s');
        sfq (packets = 0); srpt (packets = 0); tbf (rate = 0); tbf (burst = '0 B'); wfq (flows = 0)";
    for declared in senseless.split(';').map(str::trim) {
        let name = declared.split(' ').next().unwrap_or_default();
        let text = format!("IMPORT 'library/queues/{name}.weft';\nCREATE QUEUE it AS {declared}; END;");
        let found = faults(&text);
        assert!(
            found.iter().any(|code| ["W0216", "W0314", "W0432", "W0705"].contains(&&**code)),
            "{declared}: {found:?}"
        );
    }
}

/// If this fails, counts of marks include marks from other queues.
#[test]
fn marked_arrival_is_not_remarked() {
    let text =
        "CREATE QUEUE below AS LIMIT 10 PACKETS ON OVERFLOW DROP TAIL; ON ENQUEUE MARK; ON DEQUEUE MARK; END;
        CREATE QUEUE above AS LIMIT 10 PACKETS ON OVERFLOW DROP TAIL; ON DEQUEUE MARK OR DROP; END;
        CREATE QUEUE it AS above EACH USING below; END;";
    let mut queue = last(text);
    for ecn in 0..4 {
        queue.enqueue(&Packet { ecn, ..packet(ecn.into(), 0, 100) }, 0);
    }
    assert_eq!(drain(&mut queue, 1), [1, 2, 3]);
    let counts = queue.counts();
    assert_eq!((counts.marked, counts.dropped_dequeue), (2, 1));
    assert_eq!(dropped(&mut queue), [0]);
}

/// If this fails, hosts are weighted by unused partitions, or by those of other hosts.
#[test]
fn partitions_count_by_last_packet() {
    let text = "CREATE QUEUE it AS
        PARTITION VAR n U32;
        PARTITION BY flow() HASH 1024 WAYS 8;
        ORDER PARTITIONS BY rank;
        LIMIT 100 PACKETS ON OVERFLOW DROP TAIL OF PARTITION ORDER BY bytes DESC;
        ON ENQUEUE
          IF p.dscp = 1 THEN DROP; END IF;
          SET n = partitions(p.src) * 10 + partitions(p.dst);
          ACCEPT;
        ON DEQUEUE
          SET p.class = n;
          SEND;
        END;";
    let mut it = last(text);
    let class = |queue: &mut Queue<Interpreted>| {
        queue.dequeue(1).and_then(|_| queue.last_sent(weft_ir::queue::Field::Class))
    };
    let come = |queue: &mut Queue<Interpreted>, flow, src, dst, dscp| {
        queue.enqueue(&Packet { src, dst, dscp, ..packet(u64::from(flow), flow, 100) }, 0);
    };
    // Three flows of one source to two destinations, and one of another source.
    come(&mut it, 1, 1, 7, 0);
    come(&mut it, 2, 1, 7, 0);
    come(&mut it, 3, 1, 8, 0);
    come(&mut it, 4, 2, 8, 0);
    // Another packet of a flow adds no partition, and a refused packet does not either.
    come(&mut it, 1, 1, 7, 0);
    come(&mut it, 5, 1, 7, 1);
    come(&mut it, 6, 1, 9, 0);
    let rest = it.snapshot();
    let classes: Vec<_> = std::iter::from_fn(|| class(&mut it)).collect();
    assert_eq!(classes, [32, 32, 22, 31, 12, 41]);
    // All packets have left.
    come(&mut it, 9, 1, 7, 0);
    assert_eq!(class(&mut it), Some(11));
    // A queue that is restored from the snapshot knows the partitions in use.
    let mut again =
        Queue::restore(it.program().clone(), Interpreted::new(it.program().clone()), &rest).expect("it fits");
    come(&mut again, 7, 1, 7, 0);
    assert_eq!(
        again.snapshot().rows.len(),
        rest.rows.len() + 3,
        "a partition, a packet, and that it is in use"
    );
    let classes: Vec<_> = std::iter::from_fn(|| class(&mut again)).collect();
    assert_eq!(classes.last(), Some(&53));
}
