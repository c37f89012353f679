//! SETTINGS in both directions (RFC 9113 section 6.5).

use super::limits::{HEADER_TABLE_BYTES_MAX, SETTINGS_MAX, Violation};
use super::{Config, Connection, Event, Phase, Role};
use crate::session::http2::frame::{
    FrameHead, MAX_FRAME_SIZE_MAX, MAX_FRAME_SIZE_MIN, WINDOW_INITIAL, WINDOW_MAX, be_u32, flag, kind,
    setting,
};
use crate::session::http2::hpack::TABLE_BYTES_INITIAL;

/// The peer's settings.
pub(super) struct PeerSettings {
    /// Whether its SETTINGS arrived.
    pub(super) is_known: bool,
    /// Maximum number of streams that we may open; `None`: unlimited.
    pub(super) max_streams: Option<u32>,
    /// Window of a new stream, in bytes.
    pub(super) initial_window: i32,
    pub(super) max_frame_bytes: u32,
    pub(super) max_header_list_bytes: u32,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            is_known: false,
            max_streams: None,
            initial_window: WINDOW_INITIAL as i32,
            max_frame_bytes: MAX_FRAME_SIZE_MIN,
            max_header_list_bytes: u32::MAX,
        }
    }
}

/// Clamps each value to the range of the standard.
pub(super) fn clamp(config: &mut Config) {
    config.initial_window = config.initial_window.min(WINDOW_MAX);
    config.connection_window = config.connection_window.clamp(WINDOW_INITIAL, WINDOW_MAX);
    config.max_frame_size = config.max_frame_size.clamp(MAX_FRAME_SIZE_MIN, MAX_FRAME_SIZE_MAX);
    config.header_table_size = config.header_table_size.min(HEADER_TABLE_BYTES_MAX);
}

impl Connection {
    /// Writes our SETTINGS frame.
    pub(super) fn write_settings(&mut self) {
        let config = &self.config;
        let role_setting = match config.role {
            Role::Client => (setting::ENABLE_PUSH, 0),
            Role::Server => (setting::MAX_CONCURRENT_STREAMS, config.max_concurrent_streams),
        };
        let settings = [
            role_setting,
            (setting::HEADER_TABLE_SIZE, config.header_table_size),
            (setting::INITIAL_WINDOW_SIZE, config.initial_window),
            (setting::MAX_FRAME_SIZE, config.max_frame_size),
            (setting::MAX_HEADER_LIST_SIZE, config.max_header_list_size),
        ];
        let mut payload = [0; 30];
        for (entry, (id, value)) in payload.chunks_exact_mut(6).zip(settings) {
            entry[..2].copy_from_slice(&id.to_be_bytes());
            entry[2..].copy_from_slice(&value.to_be_bytes());
        }
        self.output.write_frame(kind::SETTINGS, 0, 0, &payload);
        let more = config.connection_window - WINDOW_INITIAL;
        if more > 0 {
            self.output.write_frame(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
    }

    /// The window of a new stream: until the peer has acknowledged our settings, it may rely on the initial window.
    pub(super) fn new_recv_window(&self) -> i32 {
        let ours = self.config.initial_window;
        let window = if self.is_settings_acked { ours } else { ours.max(WINDOW_INITIAL) };
        window as i32
    }

    /// Handles SETTINGS: applies the peer's settings and acknowledges them, or handles the acknowledgement of ours.
    pub(super) fn on_settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Violation> {
        if head.stream != 0 {
            return Err(Violation::UnexpectedFrame);
        }
        if head.has(flag::ACK) {
            return if payload.is_empty() { self.on_settings_ack() } else { Err(Violation::FrameSize) };
        }
        if !payload.len().is_multiple_of(6) {
            return Err(Violation::FrameSize);
        }
        if payload.len() > SETTINGS_MAX * 6 {
            return Err(Violation::ControlFlood);
        }
        for entry in payload.chunks_exact(6) {
            // A setting may change every stream's window, so each counts like a frame.
            self.budgets.controls.spend(Violation::ControlFlood)?;
            self.apply(u16::from_be_bytes([entry[0], entry[1]]), be_u32(&entry[2..]))?;
        }
        self.output.write_control(kind::SETTINGS, flag::ACK, 0, &[]);
        self.peer.is_known = true;
        self.phase = Phase::Open;
        self.timers.preface_at = None;
        if self.config.role == Role::Client {
            self.notices.push_back(Event::StreamsAvailable);
        }
        self.check_output()
    }

    /// Handles the first acknowledgement of our settings: reduces the header table and the receive windows to the
    /// configured values.
    fn on_settings_ack(&mut self) -> Result<(), Violation> {
        if self.is_settings_acked {
            return Ok(());
        }
        self.is_settings_acked = true;
        self.timers.settings_at = None;
        if self.config.header_table_size < TABLE_BYTES_INITIAL {
            self.decoder.set_table_limit(self.config.header_table_size);
        }
        if self.config.initial_window < WINDOW_INITIAL {
            let less = (WINDOW_INITIAL - self.config.initial_window) as i32;
            let mut open = Vec::new();
            for stream in self.streams.iter_mut() {
                stream.recv_window -= less;
                open.push(stream.id);
            }
            // Data consumed meanwhile did not need to be returned before.
            for stream in open {
                self.release(stream, 0);
            }
        }
        Ok(())
    }

    /// Applies one setting of the peer. Fails if the value is not permitted; ignores unknown settings.
    fn apply(&mut self, id: u16, value: u32) -> Result<(), Violation> {
        match id {
            setting::HEADER_TABLE_SIZE => self.encoder.set_peer_table_bytes(value),
            setting::ENABLE_PUSH => {
                // RFC 9113 section 6.5.2: a server must not send 1.
                let max = if self.config.role == Role::Server { 1 } else { 0 };
                if value > max {
                    return Err(Violation::Settings);
                }
            }
            setting::MAX_CONCURRENT_STREAMS => self.peer.max_streams = Some(value),
            setting::INITIAL_WINDOW_SIZE => return self.set_peer_initial_window(value),
            setting::MAX_FRAME_SIZE => {
                if !(MAX_FRAME_SIZE_MIN..=MAX_FRAME_SIZE_MAX).contains(&value) {
                    return Err(Violation::Settings);
                }
                self.peer.max_frame_bytes = value;
            }
            setting::MAX_HEADER_LIST_SIZE => self.peer.max_header_list_bytes = value,
            // Unknown settings are ignored.
            _ => {}
        }
        Ok(())
    }
}
