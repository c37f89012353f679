//! The sender: which segments it sends, and when.

use super::super::measure::Histogram;
use super::super::packet::SACK_BLOCKS;
use super::super::tournament::NEVER;
use super::control::{Algorithm, Control, Progress};
use super::rto::Rto;
use super::scoreboard::Scoreboard;

/// Segments that arrive beyond a hole before it is considered lost: `DupThresh` of RFC 6675.
const DUPLICATES: u32 = 3;

/// The configuration of a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenderSpec {
    /// The congestion control algorithm.
    pub algorithm: Algorithm,
    /// Whether it uses SACK (RFC 6675). Otherwise it repairs one loss per round trip (RFC 6582).
    pub sack: bool,
    /// Payload bytes per segment.
    pub payload: u32,
    /// Header bytes per segment.
    pub header: u32,
    /// The initial window, in segments.
    pub window_first: f64,
    /// Whether an unused window does not grow, as in RFC 7661. ns-2 lets it grow.
    pub validates_window: bool,
    /// Whether it detects spurious timeouts by timestamps, and undoes them (RFC 3522, RFC 4015).
    pub detects_spurious: bool,
    /// Whether its packets are ECN-capable (RFC 3168).
    pub ecn: bool,
    /// Minimum difference between the retransmission timeout and the round-trip time.
    pub rto_slack_ns: u64,
}

/// Statistics of a sender.
#[derive(Clone, Debug, Default)]
pub struct SenderStats {
    /// Segments sent for the first time.
    pub sent: u64,
    /// Segments sent again.
    pub resent: u64,
    /// Number of recoveries, each with a window reduction.
    pub recoveries: u64,
    /// Number of retransmission timeouts.
    pub timeouts: u64,
    /// Round-trip times, in nanoseconds.
    pub rtt: Histogram,
}

/// Data in a segment that its acknowledgement returns.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Stamp {
    pub(in super::super) sent_at_ns: u64,
    /// Segments delivered when it was sent, and the time of the last delivery.
    pub(in super::super) delivered: u32,
    pub(in super::super) delivered_at_ns: u64,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Ack {
    /// The first segment that has not arrived.
    pub(in super::super) expected: u32,
    pub(in super::super) sack: [(u32, u32); SACK_BLOCKS],
    /// The stamp of the acknowledged segment.
    pub(in super::super) stamp: Stamp,
    /// The acknowledged segment was ECN-marked.
    pub(in super::super) is_marked: bool,
}

/// The sending end of a flow.
#[derive(Clone, Debug)]
pub(in super::super) struct Sender {
    pub(in super::super) spec: SenderSpec,
    pub(in super::super) stats: SenderStats,
    scoreboard: Scoreboard,
    control: Control,
    rto: Rto,
    /// Segments that the application has submitted.
    given: u32,
    recovery: Option<Recovery>,
    /// When the last recovery ended.
    recovered_at_ns: u64,
    /// The first unacknowledged segment at the last timeout.
    timed_out: u32,
    /// The time of a timeout that may be spurious, and the state to restore; `None` once that is decided.
    suspect: Option<(u64, Control)>,
    /// Consecutive duplicate acknowledgements.
    duplicates: u32,
    /// When the retransmission timer expires.
    rto_at_ns: u64,
    /// Pacing: the next segment is not sent before this time.
    paced_until_ns: u64,
    /// The window limited the sender at the last poll.
    is_full: bool,
    delivered: u32,
    delivered_at_ns: u64,
    /// The round ends when a segment is acknowledged that was sent after this many deliveries.
    round_ends: u32,
}

/// The reaction to congestion. Further congestion within one round trip causes no other reaction.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// It ends when this segment is acknowledged.
    until: u32,
    cause: RecoveryCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecoveryCause {
    /// Later segments arrived beyond a hole.
    Loss,
    /// A retransmission timeout. The window grows again meanwhile.
    Timeout,
    /// An ECN mark: there is nothing to resend.
    Mark,
}

impl Default for SenderSpec {
    /// NewReno with SACK, 1448-byte segments in 1500-byte packets, an initial window of ten (RFC 6928).
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
    /// A sender with nothing to send, in slow start.
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

    /// The application submits segments. The count saturates for an endless transfer.
    pub(in super::super) fn give(&mut self, segments: u32) {
        self.given = self.given.saturating_add(segments);
    }

    /// Segments that the application has submitted.
    pub(in super::super) fn given(&self) -> u32 {
        self.given
    }

    /// Cumulatively acknowledged segments.
    pub(in super::super) fn acknowledged(&self) -> u32 {
        self.scoreboard.una()
    }

    /// The congestion window, in segments.
    pub(in super::super) fn window(&self) -> f64 {
        self.control.window()
    }

    /// When to call [`Sender::handle_timeout`] or [`Sender::poll_send`] again.
    pub(in super::super) fn poll_timeout(&self) -> u64 {
        let waits_for_pace = self.has_something() && self.has_room();
        if waits_for_pace { self.rto_at_ns.min(self.paced_until_ns) } else { self.rto_at_ns }
    }

    /// An acknowledgement arrives. Poll for segments to send afterwards.
    pub(in super::super) fn handle_ack(&mut self, ack: &Ack, now_ns: u64) {
        let rtt_ns = now_ns - ack.stamp.sent_at_ns;
        self.stats.rtt.add(rtt_ns);
        self.rto.sample(rtt_ns);
        let una = self.scoreboard.una();
        let fresh = if self.spec.sack { self.count_sacked(ack) } else { self.count_duplicates(ack) };
        let has_advanced = self.scoreboard.una() > una;
        if has_advanced {
            self.duplicates = 0;
            self.undo_timeout(ack, now_ns);
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

    /// The time of [`Sender::poll_timeout`] has come. Poll for segments to send afterwards.
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
        self.scoreboard.mark_all_lost();
        self.duplicates = 0;
        self.recovery = Some(Recovery { until: self.scoreboard.next(), cause: RecoveryCause::Timeout });
        self.paced_until_ns = now_ns;
        self.rto.back_off();
        self.start_timer(now_ns);
    }

    /// The segment to send now, if any, and its stamp.
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
            // An idle period is no sample of the path's rate.
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
        // A retransmission of the first segment restarts the timer: its acknowledgement is a round trip away.
        if self.rto_at_ns == NEVER || seq == self.scoreboard.una() {
            self.start_timer(now_ns);
        }
        let stamp =
            Stamp { sent_at_ns: now_ns, delivered: self.delivered, delivered_at_ns: self.delivered_at_ns };
        Some((seq, stamp))
    }

    /// Whether something was acknowledged since the last timeout. RFC 5681, section 3.1, keeps the threshold only if
    /// the timer expires again for the same segment. After progress, a timeout is new congestion; otherwise a very
    /// lossy path would refill to the same threshold after each timeout. Without SACK everything in flight is resent,
    /// and its timeouts count as one.
    fn has_advanced_since(&self) -> bool {
        self.spec.sack && self.scoreboard.una() > self.timed_out
    }

    /// The flight size for a window reduction. With a hole that is lost repeatedly, many outstanding segments have
    /// already arrived; half of them may exceed the window, and a loss must not increase it.
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

    /// RFC 6298, section 5: the timer runs while segments are outstanding.
    fn start_timer(&mut self, now_ns: u64) {
        let runs = self.scoreboard.outstanding() > 0;
        self.rto_at_ns = if runs { now_ns + self.rto.timeout_ns() } else { NEVER };
    }

    /// The number of segments that an acknowledgement with SACK blocks newly acknowledges.
    fn count_sacked(&mut self, ack: &Ack) -> u32 {
        let mut fresh = self.scoreboard.acknowledge(ack.expected);
        for (from, to) in ack.sack {
            fresh += self.scoreboard.sack(from, to);
        }
        fresh
    }

    /// Counts duplicate acknowledgements without SACK: a duplicate reports one arrival.
    fn count_duplicates(&mut self, ack: &Ack) -> u32 {
        let guessed = self.scoreboard.n_sacked();
        let row = self.scoreboard.acknowledge(ack.expected);
        if row > 0 {
            // The first segment fills the hole; duplicates have reported the others.
            self.scoreboard.unguess_sacked(row - 1);
            return row - guessed.min(row - 1);
        }
        // Unnecessary retransmissions cause duplicates too, which are no sign of a later loss.
        let is_of_repair =
            self.cause() == Some(RecoveryCause::Timeout) || ack.stamp.sent_at_ns < self.recovered_at_ns;
        if ack.expected < self.scoreboard.una() || self.scoreboard.outstanding() == 0 || is_of_repair {
            return 0;
        }
        self.duplicates += 1;
        self.scoreboard.guess_sacked(1);
        self.scoreboard.n_sacked() - guessed
    }

    /// The first progress after a timeout shows by its timestamp which segment it acknowledges. A segment that was sent
    /// before the timeout proves that the timeout was spurious.
    fn undo_timeout(&mut self, ack: &Ack, now_ns: u64) {
        if let Some((at_ns, control)) = self.suspect.take()
            && ack.stamp.sent_at_ns < at_ns
        {
            self.control = control;
            self.scoreboard.clear_losses();
            self.end_recovery(now_ns);
        }
    }

    fn end_recovery(&mut self, now_ns: u64) {
        self.recovery = None;
        self.recovered_at_ns = now_ns;
    }

    /// Detects losses, and starts or ends a recovery.
    fn recover(&mut self, ack: &Ack, has_advanced: bool, now_ns: u64) {
        let is_over = |recovery: &Recovery| self.scoreboard.una() >= recovery.until;
        if self.recovery.as_ref().is_some_and(is_over) {
            self.end_recovery(now_ns);
        }
        let flight = self.flight();
        let is_lost = if self.spec.sack {
            self.scoreboard.detect_losses(DUPLICATES) > 0
        } else {
            let is_partial = has_advanced && self.cause() == Some(RecoveryCause::Loss);
            let is_third = self.duplicates == DUPLICATES && self.recovery.is_none();
            if is_partial || is_third {
                self.scoreboard.mark_first_lost();
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
