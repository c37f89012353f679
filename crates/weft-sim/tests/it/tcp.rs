//! Compares TCP senders with published results.

use std::sync::Arc;

use crate::queues::library_queue;
use crate::rig::{MS, S, endless, lossy, rates, sender, with};
use weft_ir::queue::run::Interpreted;
use weft_sim::net::measure::jain;
use weft_sim::net::twins::Fifo;
use weft_sim::net::{Algorithm, Dumbbell, LinkSpec, Net, Programmed, SenderSpec, Sizes, Trace, Workload};

/// 10 Mbit/s, 40 ms, and a packet limit; the bandwidth-delay product is 33 packets.
fn ten_mbit(net: &mut Net, limit_packets: u64) -> Dumbbell {
    let link = LinkSpec::fixed(10_000_000, 20 * MS);
    Dumbbell::new(net, link, Box::new(Fifo::new(limit_packets)), 20 * MS)
}

/// The mean number of segments per round trip on a path that drops one segment in `period`.
fn mean_window(algorithm: Algorithm, rtt_ns: u64, period: u64) -> f64 {
    let mut net = Net::new(1);
    let ends = lossy(&mut net, rtt_ns, period);
    let flow = net.add_flow(endless(&ends, sender(algorithm)));
    let end_ns = 2000 * rtt_ns;
    let rate = rates(&mut net, &[flow], end_ns / 10, end_ns)[0];
    rate / 8.0 / 1500.0 * rtt_ns as f64 / 1e9
}

/// If this fails, a run cannot be repeated, or packets appear from nowhere.
#[test]
fn run_follows_seed_and_adds_up() {
    let run = |seed| {
        let mut net = Net::new(seed);
        let link = LinkSpec { loss: 0.01, reorder: 0.02, ..LinkSpec::fixed(10_000_000, 20 * MS) };
        let ends = Dumbbell::new(&mut net, link, Box::new(Fifo::new(30)), 20 * MS);
        let workload = Workload::OnOff { sizes: Sizes::Web { more: 16_384 }, off_mean_ns: 200 * MS };
        let flows = [Algorithm::NewReno, Algorithm::Cubic, Algorithm::BbrLike].map(sender);
        let web = net.add_flow(with(&ends, flows[0], workload));
        let flows = flows.map(|sender| net.add_flow(endless(&ends, sender)));
        let rates = rates(&mut net, &flows, 0, 20 * S);
        let link = net.link(ends.bottleneck);
        assert!(link.lost > 0 && link.dropped > 0);
        (rates, net.flow(web).completions.to_vec(), net.events(), net.packets_made())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// If this fails, a link is not used, or carries more than its rate.
#[test]
fn bdp_queue_fills_the_link() {
    let kinds = [
        (Algorithm::NewReno, true),
        (Algorithm::NewReno, false),
        (Algorithm::Cubic, true),
        (Algorithm::BbrLike, true),
    ];
    for (algorithm, sack) in kinds {
        let mut net = Net::new(1);
        let ends = ten_mbit(&mut net, 34);
        let flow = net.add_flow(endless(&ends, SenderSpec { sack, ..sender(algorithm) }));
        let rate = rates(&mut net, &[flow], 20 * S, 80 * S)[0];
        assert!((9.3e6..=10.0e6).contains(&rate), "{algorithm:?}, SACK {sack}: {rate}");
        // In the burst at the end of slow start, a retransmission or the last segment may be lost; only a timeout
        // detects that.
        let timeouts = net.flow(flow).sender.timeouts;
        assert!(timeouts <= 2, "{algorithm:?}, SACK {sack}: {timeouts}");
    }
}

/// If this fails, NewReno differs from RFC 9438, section 5.2, table of "AIMD" (RFC 3649): a window of 1.2 / sqrt(loss
/// rate).
#[test]
fn newreno_matches_rfc_3649() {
    for (period, window) in [(100, 12.0), (1000, 38.0), (10_000, 120.0)] {
        let got = mean_window(Algorithm::NewReno, 100 * MS, period);
        assert!((0.9..=1.1).contains(&(got / window)), "one in {period}: {got} segments, not {window}");
    }
}

/// If this fails, CUBIC's mean window differs from RFC 9438, section 5.2, at 0.1 s and, in the Reno region, at 0.01 s.
#[test]
fn cubic_matches_rfc_9438() {
    for (rtt_ns, period, window) in
        [(100 * MS, 1000, 38.0), (100 * MS, 10_000, 187.0), (10 * MS, 1000, 38.0), (10 * MS, 10_000, 120.0)]
    {
        let got = mean_window(Algorithm::Cubic, rtt_ns, period);
        assert!((0.85..=1.15).contains(&(got / window)), "one in {period}, {rtt_ns} ns: {got}, not {window}");
    }
}

/// If this fails, a loss does not halve the window (RFC 5681), or not to seven tenths (RFC 9438).
#[test]
fn loss_cuts_window_per_rfc() {
    for (algorithm, left) in [(Algorithm::NewReno, 0.5), (Algorithm::Cubic, 0.7)] {
        let mut net = Net::new(1);
        let ends = lossy(&mut net, 100 * MS, 4000);
        let flow = net.add_flow(endless(&ends, sender(algorithm)));
        let mut before = net.flow(flow).window;
        let mut cuts = Vec::new();
        while net.now_ns() < 100 * S {
            let recoveries = net.flow(flow).sender.recoveries;
            net.run_until(net.now_ns() + MS);
            let flow = net.flow(flow);
            if flow.sender.recoveries > recoveries {
                cuts.push(flow.window / before);
            }
            before = flow.window;
        }
        // The first reduction ends slow start, where the data in flight is not the window.
        for cut in &cuts[1..] {
            assert!((cut / left - 1.0).abs() < 0.05, "{algorithm:?}: {cuts:?}");
        }
    }
}

/// If this fails, two flows on a link do not converge: Chiu and Jain's argument for additive increase.
#[test]
fn late_flow_gets_its_share() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::BbrLike] {
        let mut net = Net::new(1);
        let ends = ten_mbit(&mut net, 34);
        let first = net.add_flow(endless(&ends, sender(algorithm)));
        let late = weft_sim::net::FlowSpec { start_ns: 20 * S, ..endless(&ends, sender(algorithm)) };
        let late = net.add_flow(late);
        let rates = rates(&mut net, &[first, late], 60 * S, 200 * S);
        assert!(jain(&rates) > 0.9, "{algorithm:?}: {rates:?}");
    }
}

/// If this fails, throughput at equal loss rates does not depend on the round-trip time as published: inversely for
/// Reno, and for CUBIC outside of the Reno region by one over the fourth root (RFC 9438, section 5.1, equation 6).
#[test]
fn rtt_bias_matches_publication() {
    let rate = |algorithm, rtt_ms, period| mean_window(algorithm, rtt_ms * MS, period) / rtt_ms as f64;
    let reno = rate(Algorithm::NewReno, 50, 4000) / rate(Algorithm::NewReno, 100, 4000);
    assert!((1.85..=2.15).contains(&reno), "{reno}");
    let cubic = rate(Algorithm::Cubic, 100, 20_000) / rate(Algorithm::Cubic, 200, 20_000);
    assert!((1.08..=1.32).contains(&cubic), "{cubic}: 1.19");
}

/// If this fails, a burst of losses costs the same with and without SACK. Without it, one loss is repaired per round
/// trip (RFC 6582); with it, all at once (RFC 6675).
#[test]
fn sack_repairs_losses_together() {
    let took = |sack| {
        let mut net = Net::new(1);
        let ends = ten_mbit(&mut net, 20);
        let workload = Workload::OnOff { sizes: Sizes::Fixed(400_000), off_mean_ns: 1000 * S };
        let flow = net.add_flow(with(&ends, SenderSpec { sack, ..SenderSpec::default() }, workload));
        net.run_until(10_000 * S);
        assert!(net.link(ends.bottleneck).dropped > 10);
        net.flow(flow).completions[0].took_ns
    };
    assert!(took(true) + 200 * MS < took(false), "{} {}", took(true), took(false));
}

/// If this fails, a sender does not recover after an outage, or too early: RFC 6298.
#[test]
fn link_outage_is_survived() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::BbrLike] {
        for (sack, detects_spurious) in [(true, true), (true, false), (false, true), (false, false)] {
            // 500 packets per second, with an outage of three seconds in ten.
            let lines: Vec<String> =
                (0..3500).map(|n| (n * 2).to_string()).chain(["10000".to_owned()]).collect();
            let trace = Arc::new(Trace::parse(&lines.join("\n")).unwrap());
            let mut net = Net::new(1);
            let ends =
                Dumbbell::new(&mut net, LinkSpec::trace(trace, 20 * MS), Box::new(Fifo::new(100)), 20 * MS);
            let flow =
                net.add_flow(endless(&ends, SenderSpec { sack, detects_spurious, ..sender(algorithm) }));
            let rate = rates(&mut net, &[flow], 0, 100 * S)[0];
            let most = 350.0 * 1500.0 * 8.0;
            let label = format!("{algorithm:?}, SACK {sack}, RFC 3522 {detects_spurious}: {rate} of {most}");
            assert!(rate > 0.6 * most && rate <= most, "{label}");
            assert!(net.flow(flow).sender.timeouts >= 5, "{label}");
        }
    }
}

/// If this fails, a model-based sender fills the queue, or reacts to random loss: the claims of BBR.
#[test]
fn bbr_keeps_queue_short() {
    let mut net = Net::new(1);
    let ends = ten_mbit(&mut net, 1000);
    let flow = net.add_flow(endless(&ends, sender(Algorithm::BbrLike)));
    let rate = rates(&mut net, &[flow], 5 * S, 60 * S)[0];
    let rtt_ms = net.flow(flow).sender.rtt.percentile(0.5) as f64 / 1e6;
    assert!(rate > 9.0e6 && rtt_ms < 60.0, "{rate}, {rtt_ms} ms of 41.2");
    let lossy = |algorithm| {
        let mut net = Net::new(1);
        let link = LinkSpec { loss: 0.02, ..LinkSpec::fixed(10_000_000, 20 * MS) };
        let ends = Dumbbell::new(&mut net, link, Box::new(Fifo::new(1000)), 20 * MS);
        let flow = net.add_flow(endless(&ends, sender(algorithm)));
        rates(&mut net, &[flow], 5 * S, 60 * S)[0]
    };
    let (bbr, reno) = (lossy(Algorithm::BbrLike), lossy(Algorithm::NewReno));
    assert!(bbr > 8e6 && reno < 4e6, "{bbr} {reno}");
}

/// If this fails, completion times of short messages are wrong by one or more round trips.
#[test]
fn short_message_takes_slow_start() {
    let mut net = Net::new(1);
    let ends =
        Dumbbell::new(&mut net, LinkSpec::fixed(1_000_000_000, 50 * MS), Box::new(Fifo::new(1000)), 50 * MS);
    // 10 segments fit the first window; 10 + 20 + 40 + 80 = 150 take four.
    let message =
        |segments: u64| Workload::OnOff { sizes: Sizes::Fixed(1448 * segments), off_mean_ns: 100_000 * S };
    let flows = [10, 11, 150, 151].map(|n| net.add_flow(with(&ends, SenderSpec::default(), message(n))));
    net.run_until(1_000_000 * S);
    let rounds = flows.map(|flow| net.flow(flow).completions[0].took_ns / (100 * MS));
    assert_eq!(rounds, [1, 2, 4, 5]);
}

/// If this fails, calls on one connection wait for each other more or less than they should.
#[test]
fn calls_arrive_by_poisson() {
    let mut net = Net::new(1);
    let ends =
        Dumbbell::new(&mut net, LinkSpec::fixed(1_000_000_000, 5 * MS), Box::new(Fifo::new(1000)), 5 * MS);
    let workload = Workload::Poisson { sizes: Sizes::Fixed(1000), gap_mean_ns: 2 * MS };
    let flow = net.add_flow(with(&ends, SenderSpec::default(), workload));
    net.run_until(20 * S);
    let done = net.flow(flow).completions;
    assert!((9500..10_500).contains(&done.len()), "{}", done.len());
    assert!(done.iter().all(|call| (10 * MS..30 * MS).contains(&call.took_ns)));
}

/// If this fails, a sender with consecutive drops, as PIE's after an overshoot of slow start, returns to the same
/// window after each timeout, and sends twice the link's rate forever.
#[test]
fn heavy_loss_slows_senders() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let program = library_queue("pie", "");
        let queue = Programmed::new(program.clone(), Interpreted::new(program), 1);
        let mut net = Net::new(1);
        let link = LinkSpec::fixed(15_000_000, 75 * MS);
        let ends = Dumbbell::new(&mut net, link, Box::new(queue), 75 * MS);
        let flow = net.add_flow(endless(&ends, sender(algorithm)));
        net.run_until(10 * S);
        let before = net.link(ends.bottleneck).dropped;
        net.run_until(60 * S);
        let (dropped, received) = (net.link(ends.bottleneck).dropped - before, net.flow(flow).received);
        assert!(received > 45_000, "{algorithm:?}: {received}");
        assert!(dropped * 100 < received, "{algorithm:?}: {dropped} of {received}");
    }
}
