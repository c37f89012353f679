//! Timeouts of a connection: settings, keepalive PINGs, stalled streams, graceful closing, and release of memory.

use weft_core::Time;

use super::limits::{IDLE_TRIM, PING_INTERVAL_MIN, QUICK_PINGS_MAX, Violation};
use super::{Config, Connection, ConnectionError, Drain, Phase, Role};
use crate::session::http2::frame::{ErrorCode, kind};

/// The deadlines of a connection, and the times from which they follow.
pub(super) struct Timers {
    /// The peer's SETTINGS must have arrived.
    pub(super) preface_at: Option<Time>,
    /// Our SETTINGS must be acknowledged.
    pub(super) settings_at: Option<Time>,
    /// The last PING must be answered, or other input must have arrived.
    ping_at: Option<Time>,
    /// Some queued data may have waited too long.
    stall_at: Option<Time>,
    /// The client has had enough time to see the GOAWAY.
    pub(super) drain_at: Option<Time>,
    /// The time of the last input.
    last_input: Time,
    /// Our PINGs since the peer's last HEADERS or DATA.
    n_pings: u8,
    /// Whether the caches are empty.
    pub(super) is_trimmed: bool,
}

/// The payload of keepalive PINGs.
const KEEPALIVE_PING: [u8; 8] = *b"weftlive";

impl Timers {
    /// Starts the deadlines for the peer's SETTINGS and its acknowledgement of ours.
    pub(super) fn new(config: &Config, now: Time) -> Self {
        Self {
            preface_at: Some(now + config.preface_timeout),
            settings_at: Some(now + config.settings_timeout),
            ping_at: None,
            stall_at: None,
            drain_at: None,
            last_input: now,
            n_pings: 0,
            // The output contains the settings.
            is_trimmed: false,
        }
    }

    #[inline]
    pub(super) fn record_input(&mut self, now: Time) {
        self.last_input = now;
        self.ping_at = None;
    }

    /// HEADERS or DATA arrived.
    #[inline]
    pub(super) fn record_message(&mut self) {
        self.n_pings = 0;
    }

    /// Some data waits, and times out at `at`.
    pub(super) fn record_stall(&mut self, at: Time) {
        self.stall_at.get_or_insert(at);
    }
}

impl Connection {
    /// When [`Self::handle_timeout`] is due. Poll again after any other call.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.phase == Phase::Failed {
            return None;
        }
        let timers = &self.timers;
        let keepalive = timers.ping_at.or_else(|| self.next_ping_at());
        let fixed = [timers.preface_at, timers.settings_at, timers.stall_at, timers.drain_at, keepalive];
        fixed.into_iter().chain([self.trim_at()]).flatten().min()
    }

    /// Handles the timeouts that are due at `now`; early calls do no harm. Then take the results with
    /// [`Self::poll_event`].
    ///
    /// # Errors
    /// The peer missed a deadline.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), ConnectionError> {
        self.now = now;
        if self.phase == Phase::Failed {
            return Ok(());
        }
        self.run_timers().map_err(|violation| self.fail(violation))
    }

    /// Handles the deadlines that have passed: fails the connection, sends a keepalive PING, or resets stalled
    /// streams.
    fn run_timers(&mut self) -> Result<(), Violation> {
        let now = self.now;
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if is_due(self.timers.preface_at) {
            return Err(Violation::SlowPreface);
        }
        if is_due(self.timers.settings_at) {
            return Err(Violation::SettingsTimeout);
        }
        if is_due(self.timers.ping_at) {
            return Err(Violation::KeepaliveTimeout);
        }
        if is_due(self.timers.drain_at) && self.drain == Drain::Announced {
            self.finish_drain(ErrorCode::NoError);
        }
        if let Some(keepalive) = self.config.keepalive
            && self.timers.ping_at.is_none()
            && is_due(self.next_ping_at())
        {
            self.output.write_frame(kind::PING, 0, 0, &KEEPALIVE_PING);
            self.timers.ping_at = Some(now + keepalive.timeout);
            self.timers.n_pings = self.timers.n_pings.saturating_add(1);
        }
        if is_due(self.timers.stall_at) {
            self.end_stalls()?;
        }
        if is_due(self.trim_at()) {
            self.trim();
        }
        Ok(())
    }

    /// When to send a keepalive PING to a silent peer, unless one is pending.
    fn next_ping_at(&self) -> Option<Time> {
        let keepalive = self.config.keepalive?;
        if self.streams.is_empty() && !keepalive.without_streams {
            return None;
        }
        let is_quick = self.config.role == Role::Server || self.timers.n_pings < QUICK_PINGS_MAX;
        let silence = if is_quick { keepalive.interval } else { keepalive.interval.max(PING_INTERVAL_MIN) };
        Some(self.timers.last_input + silence)
    }

    /// Resets each stream whose data has waited too long, and finds the next deadline.
    fn end_stalls(&mut self) -> Result<(), Violation> {
        let (now, patience) = (self.now, self.config.stall_timeout);
        let waiting = self.streams.iter().filter_map(|s| Some((s.id, s.queue.as_ref()?.since + patience)));
        let (stalled, rest): (Vec<_>, Vec<_>) = waiting.partition(|&(_, at)| at <= now);
        self.timers.stall_at = rest.into_iter().map(|(_, at)| at).min();
        for (stream, _) in stalled {
            self.fail_stream(stream, Violation::WindowStall)?;
        }
        Ok(())
    }

    /// When to release the caches of an idle connection.
    fn trim_at(&self) -> Option<Time> {
        let is_idle = !self.timers.is_trimmed && self.streams.is_empty();
        is_idle.then(|| self.timers.last_input + IDLE_TRIM)
    }

    /// Releases the memory that an idle connection does not need.
    fn trim(&mut self) {
        self.timers.is_trimmed = true;
        self.decoder.trim();
        self.encoder.trim();
        self.streams.trim();
        self.output.trim();
        self.blocked = Default::default();
        if self.notices.is_empty() {
            self.notices = Default::default();
        }
    }
}
