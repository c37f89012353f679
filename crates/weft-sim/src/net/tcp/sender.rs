//! What a sender sends, and when.

use super::super::measure::Histogram;
use super::super::packet::SACK_BLOCKS;
use super::super::tournament::NEVER;
use super::control::{Algorithm, Control, Progress};
use super::rto::Rto;
use super::scoreboard::Scoreboard;

/// Segments that arrived beyond a hole until it is taken for lost: `DupThresh` of RFC 6675.
const DUPLICATES: u32 = 3;

/// What kind of sender a flow has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenderSpec {
    /// How it finds the capacity of its path.
    pub algorithm: Algorithm,
    /// Whether it heeds selective acknowledgements (RFC 6675); otherwise it repairs one loss a round trip (RFC 6582).
    pub sack: bool,
    /// Bytes of the application in a segment.
    pub payload: u32,
    /// Bytes of headers in front of them.
    pub header: u32,
    /// The window at first, in segments.
    pub window_first: f64,
    /// Whether a window that is not used does not grow, as RFC 7661 asks. ns-2 lets it grow.
    pub validates_window: bool,
    /// Whether it sees by timestamps that a time-out was for nothing, and takes it back (RFC 3522, RFC 4015).
    pub detects_spurious: bool,
    /// Whether its packets say that they can be marked (RFC 3168).
    pub ecn: bool,
    /// The least by which silence must exceed the round trip before it is taken for loss.
    pub rto_slack_ns: u64,
}

/// What a sender did.
#[derive(Clone, Debug, Default)]
pub struct SenderStats {
    /// Segments sent for the first time.
    pub sent: u64,
    /// Segments sent again.
    pub resent: u64,
    /// Times at which a loss was found and the window cut.
    pub recoveries: u64,
    /// Times at which the retransmission timer ran out.
    pub timeouts: u64,
    /// Round trips, in nanoseconds.
    pub rtt: Histogram,
}

/// What a segment carries to be brought back by its acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Stamp {
    pub(in super::super) sent_at_ns: u64,
    /// Segments that had arrived when it was sent, and when the last of them did.
    pub(in super::super) delivered: u32,
    pub(in super::super) delivered_at_ns: u64,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Ack {
    /// The first segment that has not arrived.
    pub(in super::super) expected: u32,
    pub(in super::super) sack: [(u32, u32); SACK_BLOCKS],
    /// That of the segment which it answers.
    pub(in super::super) stamp: Stamp,
    /// That segment was marked on its way.
    pub(in super::super) is_marked: bool,
}

/// One end of a flow.
#[derive(Clone, Debug)]
pub(in super::super) struct Sender {
    pub(in super::super) spec: SenderSpec,
    pub(in super::super) stats: SenderStats,
    scoreboard: Scoreboard,
    control: Control,
    rto: Rto,
    /// Segments that the application has given, since the beginning.
    given: u32,
    recovery: Option<Recovery>,
    /// When the last recovery ended.
    recovered_at_ns: u64,
    /// The first segment that was not acknowledged when the timer last ran out.
    timed_out: u32,
    /// When the timer ran out, and what it was to take back if that was for nothing; none once that is known.
    suspect: Option<(u64, Control)>,
    /// Duplicate acknowledgements in a row.
    duplicates: u32,
    /// When the retransmission timer runs out.
    rto_at_ns: u64,
    /// No segment is sent before, for the sake of the pace.
    paced_until_ns: u64,
    /// The window kept the sender from sending, the last time that it was asked.
    is_full: bool,
    delivered: u32,
    delivered_at_ns: u64,
    /// A round is over when a segment is acknowledged that was sent after so many had arrived.
    round_ends: u32,
}

/// The round trip after congestion was found, in which it is not answered again.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// It is over when this segment is reached.
    until: u32,
    cause: RecoveryCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecoveryCause {
    /// What arrived beyond a hole.
    Loss,
    /// Silence: the window grows again meanwhile.
    Timeout,
    /// A mark: nothing is to be repaired.
    Mark,
}

impl Default for SenderSpec {
    /// NewReno with SACK, segments of 1448 bytes in packets of 1500, ten of them at first (RFC 6928).
    fn default() -> Self {
        Self {
            algorithm: Algorithm::NewReno,
            sack: true,
            payload: 1448,
            header: 52,
            window_first: 10.0,
            validates_window: true,
            detects_spurious: true,
            ecn: false,
            rto_slack_ns: 200_000_000,
        }
    }
}

impl Sender {
    pub(in super::super) fn new(spec: SenderSpec) -> Self {
        Self {
            spec,
            stats: SenderStats::default(),
            scoreboard: Scoreboard::new(),
            control: Control::new(spec.algorithm, spec.window_first),
            rto: Rto::new(spec.rto_slack_ns),
            given: 0,
            recovery: None,
            recovered_at_ns: 0,
            timed_out: 0,
            suspect: None,
            duplicates: 0,
            rto_at_ns: NEVER,
            paced_until_ns: 0,
            is_full: false,
            delivered: 0,
            delivered_at_ns: 0,
            round_ends: 0,
        }
    }

    /// The application gives so many segments more; as many as there can be are an end that never comes.
    pub(in super::super) fn give(&mut self, segments: u32) {
        self.given = self.given.saturating_add(segments);
    }

    /// Segments that the application has given since the beginning.
    pub(in super::super) fn given(&self) -> u32 {
        self.given
    }

    /// Segments that are known to have arrived, without a hole.
    pub(in super::super) fn acknowledged(&self) -> u32 {
        self.scoreboard.una()
    }

    /// Segments that may be under way.
    pub(in super::super) fn window(&self) -> f64 {
        self.control.window()
    }

    /// When [`Sender::handle_timeout`] or [`Sender::poll_send`] is to be called again.
    pub(in super::super) fn poll_timeout(&self) -> u64 {
        let waits_for_pace = self.has_something() && self.has_room();
        if waits_for_pace { self.rto_at_ns.min(self.paced_until_ns) } else { self.rto_at_ns }
    }

    /// An acknowledgement arrives. Afterwards there may be something to send.
    pub(in super::super) fn handle_ack(&mut self, ack: &Ack, now_ns: u64) {
        let rtt_ns = now_ns - ack.stamp.sent_at_ns;
        self.stats.rtt.add(rtt_ns);
        self.rto.sample(rtt_ns);
        let una = self.scoreboard.una();
        let fresh = if self.spec.sack { self.take_sack(ack) } else { self.take_reno(ack) };
        let has_advanced = self.scoreboard.una() > una;
        if has_advanced {
            self.duplicates = 0;
            self.take_back(ack, now_ns);
            self.start_timer(now_ns);
        }
        self.delivered += fresh;
        let is_round = ack.stamp.delivered >= self.round_ends;
        if is_round {
            self.round_ends = self.delivered;
        }
        if fresh > 0 {
            self.delivered_at_ns = now_ns;
        }
        self.recover(ack, has_advanced, now_ns);
        if fresh > 0 {
            self.control.progress(&Progress {
                now_ns,
                acked: fresh,
                rtt_ns,
                is_full: self.is_full || !self.spec.validates_window,
                is_recovering: self.cause().is_some_and(|cause| cause != RecoveryCause::Timeout),
                delivered: self.delivered - ack.stamp.delivered,
                delivered_in_ns: now_ns - ack.stamp.delivered_at_ns,
                is_round,
                in_flight: self.scoreboard.pipe(),
            });
        }
    }

    /// The time of [`Sender::poll_timeout`] has come. Afterwards there may be something to send.
    pub(in super::super) fn handle_timeout(&mut self, now_ns: u64) {
        if now_ns < self.rto_at_ns {
            return;
        }
        self.stats.timeouts += 1;
        let is_first = self.cause() != Some(RecoveryCause::Timeout) || self.has_advanced_since();
        self.timed_out = self.scoreboard.una();
        if is_first && self.spec.detects_spurious {
            self.suspect = Some((now_ns, self.control.clone()));
        }
        self.control.timeout(self.flight(), is_first);
        if !self.spec.sack {
            self.scoreboard.unguess_sacked(u32::MAX);
        }
        self.scoreboard.lose_all();
        self.duplicates = 0;
        self.recovery = Some(Recovery { until: self.scoreboard.next(), cause: RecoveryCause::Timeout });
        self.paced_until_ns = now_ns;
        self.rto.back_off();
        self.start_timer(now_ns);
    }

    /// The number of the segment to be sent now, if one is, and its stamp.
    pub(in super::super) fn poll_send(&mut self, now_ns: u64) -> Option<(u32, Stamp)> {
        if !self.has_something() {
            self.is_full = false;
            return None;
        }
        if !self.has_room() {
            self.is_full = true;
            return None;
        }
        if now_ns < self.paced_until_ns {
            return None;
        }
        if let Some(gap_ns) = self.control.gap_ns() {
            self.paced_until_ns = self.paced_until_ns.max(now_ns) + gap_ns;
        }
        if self.scoreboard.pipe() == 0 {
            // Time in which nothing was under way says nothing of the path.
            self.delivered_at_ns = now_ns;
        }
        let seq = match self.scoreboard.send_lost() {
            Some(seq) => {
                self.stats.resent += 1;
                seq
            }
            None => {
                self.stats.sent += 1;
                self.scoreboard.send_new()
            }
        };
        // The first segment starts the timer anew where it is sent again: its acknowledgement is a round trip away.
        if self.rto_at_ns == NEVER || seq == self.scoreboard.una() {
            self.start_timer(now_ns);
        }
        let stamp =
            Stamp { sent_at_ns: now_ns, delivered: self.delivered, delivered_at_ns: self.delivered_at_ns };
        Some((seq, stamp))
    }

    /// Whether something has arrived since the timer last ran out. RFC 5681, section 3.1, holds the threshold only
    /// where the timer runs out for the same segment again: behind progress it is congestion anew, or a path that
    /// loses much would be filled to the same threshold after each time-out. Without selective acknowledgements all
    /// that was under way is sent again, and its time-outs are one.
    fn has_advanced_since(&self) -> bool {
        self.spec.sack && self.scoreboard.una() > self.timed_out
    }

    /// Segments that a loss is to be judged by. Behind a hole that is lost again and again much is outstanding that
    /// has arrived: half of that may be more than the window, and a loss must not widen it.
    fn flight(&self) -> u32 {
        let outstanding = self.scoreboard.outstanding();
        if self.spec.sack { outstanding.min(self.control.window().ceil() as u32) } else { outstanding }
    }

    fn cause(&self) -> Option<RecoveryCause> {
        self.recovery.map(|recovery| recovery.cause)
    }

    fn has_something(&self) -> bool {
        self.scoreboard.n_lost() > 0 || self.scoreboard.next() < self.given
    }

    fn has_room(&self) -> bool {
        f64::from(self.scoreboard.pipe()) + 1.0 <= self.control.window()
    }

    /// RFC 6298, section 5: it runs while something is outstanding.
    fn start_timer(&mut self, now_ns: u64) {
        let runs = self.scoreboard.outstanding() > 0;
        self.rto_at_ns = if runs { now_ns + self.rto.timeout_ns() } else { NEVER };
    }

    /// How many segments have arrived by an acknowledgement with blocks.
    fn take_sack(&mut self, ack: &Ack) -> u32 {
        let mut fresh = self.scoreboard.acknowledge(ack.expected);
        for (from, to) in ack.sack {
            fresh += self.scoreboard.sack(from, to);
        }
        fresh
    }

    /// The same without blocks: a duplicate says that some segment has arrived.
    fn take_reno(&mut self, ack: &Ack) -> u32 {
        let guessed = self.scoreboard.n_sacked();
        let row = self.scoreboard.acknowledge(ack.expected);
        if row > 0 {
            // The first of the row fills the hole, the others are those that duplicates told of.
            self.scoreboard.unguess_sacked(row - 1);
            return row - guessed.min(row - 1);
        }
        // What was sent again for nothing is answered by duplicates too. They say nothing of what is sent after it.
        let is_of_repair =
            self.cause() == Some(RecoveryCause::Timeout) || ack.stamp.sent_at_ns < self.recovered_at_ns;
        if ack.expected < self.scoreboard.una() || self.scoreboard.outstanding() == 0 || is_of_repair {
            return 0;
        }
        self.duplicates += 1;
        self.scoreboard.guess_sacked(1);
        self.scoreboard.n_sacked() - guessed
    }

    /// The first progress after a time-out tells by its timestamp which segment it answers: one that was sent before
    /// says that nothing was lost but time.
    fn take_back(&mut self, ack: &Ack, now_ns: u64) {
        if let Some((at_ns, control)) = self.suspect.take()
            && ack.stamp.sent_at_ns < at_ns
        {
            self.control = control;
            self.scoreboard.find_all();
            self.end_recovery(now_ns);
        }
    }

    fn end_recovery(&mut self, now_ns: u64) {
        self.recovery = None;
        self.recovered_at_ns = now_ns;
    }

    /// What an acknowledgement says of losses.
    fn recover(&mut self, ack: &Ack, has_advanced: bool, now_ns: u64) {
        let is_over = |recovery: &Recovery| self.scoreboard.una() >= recovery.until;
        if self.recovery.as_ref().is_some_and(is_over) {
            self.end_recovery(now_ns);
        }
        let flight = self.flight();
        let is_lost = if self.spec.sack {
            self.scoreboard.judge(DUPLICATES) > 0
        } else {
            let is_partial = has_advanced && self.cause() == Some(RecoveryCause::Loss);
            let is_third = self.duplicates == DUPLICATES && self.recovery.is_none();
            if is_partial || is_third {
                self.scoreboard.lose_first();
            }
            is_partial || is_third
        };
        if self.recovery.is_none() && (is_lost || ack.is_marked) {
            self.stats.recoveries += 1;
            self.control.loss(flight);
            let cause = if is_lost { RecoveryCause::Loss } else { RecoveryCause::Mark };
            self.recovery = Some(Recovery { until: self.scoreboard.next(), cause });
            if is_lost {
                self.start_timer(now_ns);
            }
        }
    }
}
