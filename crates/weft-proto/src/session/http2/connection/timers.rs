//! What happens without input.

use weft_core::Time;

use super::limits::{IDLE_TRIM, PING_INTERVAL_MIN, QUICK_PINGS_MAX, Violation};
use super::{Config, Connection, ConnectionError, Drain, Phase, Role};
use crate::session::http2::frame::{ErrorCode, kind};

/// When something is due.
pub(super) struct Timers {
    /// The peer's SETTINGS must be here.
    pub(super) preface_at: Option<Time>,
    /// Our SETTINGS must be acknowledged.
    pub(super) settings_at: Option<Time>,
    /// The last PING must be answered, or anything else must have come.
    ping_at: Option<Time>,
    /// Some queued data may have waited too long.
    stall_at: Option<Time>,
    /// The client has had time enough to hear of the end.
    pub(super) drain_at: Option<Time>,
    /// When input came last.
    last_input: Time,
    /// PINGs of ours since the peer's last HEADERS or DATA.
    n_pings: u8,
    /// Whether the caches are empty.
    pub(super) is_trimmed: bool,
}

/// The payload of the PING that asks whether the peer is there.
const KEEPALIVE_PING: [u8; 8] = *b"weftlive";

impl Timers {
    pub(super) fn new(config: &Config, now: Time) -> Self {
        Self {
            preface_at: Some(now + config.preface_timeout),
            settings_at: Some(now + config.settings_timeout),
            ping_at: None,
            stall_at: None,
            drain_at: None,
            last_input: now,
            n_pings: 0,
            // The output holds the settings.
            is_trimmed: false,
        }
    }

    #[inline]
    pub(super) fn note_input(&mut self, now: Time) {
        self.last_input = now;
        self.ping_at = None;
    }

    /// HEADERS or DATA came.
    #[inline]
    pub(super) fn note_message(&mut self) {
        self.n_pings = 0;
    }

    /// Some data waits, and must not do so at `at`.
    pub(super) fn note_stall(&mut self, at: Time) {
        self.stall_at.get_or_insert(at);
    }
}

impl Connection {
    /// When [`Self::handle_timeout`] is due, as far as is known now. Ask again after any other call.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.phase == Phase::Failed {
            return None;
        }
        let timers = &self.timers;
        let keepalive = timers.ping_at.or_else(|| self.next_ping_at());
        let fixed = [timers.preface_at, timers.settings_at, timers.stall_at, timers.drain_at, keepalive];
        fixed.into_iter().chain([self.trim_at()]).flatten().min()
    }

    /// Does what is due at `now`; early calls do no harm. [`Self::poll_event`] then has what it led to.
    ///
    /// # Errors
    /// When the peer did not do in time what it must.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), ConnectionError> {
        self.now = now;
        if self.phase == Phase::Failed {
            return Ok(());
        }
        self.run_timers().map_err(|violation| self.fail(violation))
    }

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

    /// When the peer has been silent for long enough to be asked whether it is there, if it has not been asked.
    fn next_ping_at(&self) -> Option<Time> {
        let keepalive = self.config.keepalive?;
        if self.streams.is_empty() && !keepalive.without_streams {
            return None;
        }
        let is_quick = self.config.role == Role::Server || self.timers.n_pings < QUICK_PINGS_MAX;
        let silence = if is_quick { keepalive.interval } else { keepalive.interval.max(PING_INTERVAL_MIN) };
        Some(self.timers.last_input + silence)
    }

    /// Resets each stream whose data has waited too long, and notes when the next one will have.
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

    /// When the caches of a connection that nobody uses are freed.
    fn trim_at(&self) -> Option<Time> {
        let is_idle = !self.timers.is_trimmed && self.streams.is_empty();
        is_idle.then(|| self.timers.last_input + IDLE_TRIM)
    }

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
