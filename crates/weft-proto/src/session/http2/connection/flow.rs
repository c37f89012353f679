//! Flow control in both directions (RFC 9113 section 5.2).

use super::limits::Violation;
use super::send::{Sent, send_queue};
use super::streams::{Half, QueueEnd, Slot};
use super::{Connection, Event, StreamId};
use crate::session::http2::frame::{FrameHead, STREAM_ID_MAX, WINDOW_MAX, be_u32, kind};

/// Maximum number of ended streams in the list of blocked streams, besides twice the open ones.
const BLOCKED_SLACK: usize = 64;

/// The window of what a peer may send on all streams together.
///
/// A stream's window is returned when its owner releases the data; this one as soon as data arrives. Otherwise the data
/// of one slow stream would take the window from all others. Unreleased data stays bounded: `left` plus `held` never
/// exceed
/// `held_max`, and at that bound this window waits for releases too.
pub(super) struct RecvWindow {
    /// The full window, in bytes.
    max: u32,
    /// What the peer may send now.
    left: u32,
    /// Received bytes that are not released.
    held: u32,
    held_max: u32,
}

impl RecvWindow {
    /// A window of `max` bytes, with at most `held_max` unreleased bytes, which is at least `max`.
    pub(super) fn new(max: u32, held_max: u32) -> Self {
        Self { max, left: max, held: 0, held_max: held_max.max(max) }
    }

    /// Counts `n` received bytes.
    pub(super) fn take(&mut self, n: u32) -> Result<(), Violation> {
        self.left = self.left.checked_sub(n).ok_or(Violation::ConnectionWindow)?;
        self.held += n;
        Ok(())
    }

    /// Counts `n` released bytes, at most as many as are held.
    fn release(&mut self, n: u32) {
        self.held -= n.min(self.held);
    }

    /// The increment of a WINDOW_UPDATE, once it is worth a frame: half of the window.
    #[inline]
    fn grow(&mut self) -> Option<u32> {
        let target = self.max.min(self.held_max - self.held);
        let increment = target.checked_sub(self.left)?;
        if increment < self.max / 2 {
            return None;
        }
        self.left = target;
        Some(increment)
    }
}

impl Connection {
    /// Records that the owner has consumed `n` received bytes of `stream` ([`Event::Data`]'s `flow_len`), and the
    /// peer may send as many more. A WINDOW_UPDATE goes out at every half window.
    ///
    /// Release all received data, also of ended streams: [`super::Config::connection_held_max`] bounds the unreleased
    /// data of all streams together.
    pub fn release(&mut self, stream: StreamId, n: u32) {
        self.release_connection(n);
        let Some(slot) = self.streams.find(stream) else { return };
        let initial = self.config.initial_window;
        let stream = &mut self.streams[slot];
        if stream.recv == Half::Closed {
            return;
        }
        stream.credit = stream.credit.saturating_add(n);
        if stream.credit < (initial / 2).max(1) {
            return;
        }
        let room = (i64::from(initial) - i64::from(stream.recv_window)).max(0) as u32;
        // Before the peer acknowledges a smaller window, it has more than the new limit.
        let increment = stream.credit.min(room);
        if increment > 0 {
            stream.credit -= increment;
            stream.recv_window += increment as i32;
            let id = stream.id;
            self.output.write_frame(kind::WINDOW_UPDATE, 0, id, &increment.to_be_bytes());
        }
    }

    /// Bytes of `stream` that wait for a window, without trailers.
    pub fn queued(&self, stream: StreamId) -> usize {
        let queue = self.streams.find(stream).and_then(|slot| self.streams[slot].queue.as_ref());
        queue.map_or(0, |q| q.waiting().len())
    }

    /// Bytes of all streams that wait for a window.
    pub fn queued_bytes(&self) -> usize {
        self.streams.iter().filter_map(|stream| stream.queue.as_ref()).map(|q| q.waiting().len()).sum()
    }

    /// Counts consumed bytes that belong to the connection's window only.
    #[inline]
    pub(super) fn release_connection(&mut self, n: u32) {
        self.recv_window.release(n);
        self.grow_recv_window();
    }

    /// Sends the WINDOW_UPDATE of the connection, once it is worth a frame.
    #[inline]
    pub(super) fn grow_recv_window(&mut self) {
        if let Some(increment) = self.recv_window.grow() {
            self.output.write_frame(kind::WINDOW_UPDATE, 0, 0, &increment.to_be_bytes());
        }
    }

    /// Handles WINDOW_UPDATE: enlarges the send window of the connection or of one stream, and sends queued data.
    pub(super) fn on_window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Violation> {
        if payload.len() != 4 {
            return Err(Violation::FrameSize);
        }
        self.budgets.controls.spend(Violation::ControlFlood)?;
        let increment = be_u32(payload) & STREAM_ID_MAX;
        if head.stream == 0 {
            return self.grow_connection(increment);
        }
        let Some(slot) = self.streams.find(head.stream) else {
            // RFC 9113 section 5.1: it may have been in flight when the stream ended.
            return if self.is_idle(head.stream) { Err(Violation::IdleStream) } else { Ok(()) };
        };
        if self.is_idle(head.stream) {
            return Err(Violation::IdleStream);
        }
        if increment == 0 {
            return self.fail_stream(head.stream, Violation::ZeroIncrement);
        }
        let stream = &mut self.streams[slot];
        match stream.send_window.checked_add(increment as i32) {
            None => self.fail_stream(head.stream, Violation::WindowOverflow),
            Some(window) => {
                stream.send_window = window;
                self.flush(slot);
                Ok(())
            }
        }
    }

    /// The peer changed the initial window, which also changes the windows of open streams by the difference (RFC 9113
    /// section 6.9.2).
    pub(super) fn set_peer_initial_window(&mut self, value: u32) -> Result<(), Violation> {
        if value > WINDOW_MAX {
            return Err(Violation::SettingsWindow);
        }
        let difference = value as i32 - self.peer.initial_window;
        self.peer.initial_window = value as i32;
        let mut grown = Vec::new();
        for stream in self.streams.iter_mut() {
            stream.send_window =
                stream.send_window.checked_add(difference).ok_or(Violation::WindowOverflow)?;
            if stream.queue.is_some() && difference > 0 {
                grown.push(stream.id);
            }
        }
        for id in grown {
            if let Some(slot) = self.streams.find(id) {
                self.flush(slot);
            }
        }
        Ok(())
    }

    /// Enlarges the connection's send window, and flushes streams that wait for it.
    fn grow_connection(&mut self, increment: u32) -> Result<(), Violation> {
        if increment == 0 {
            return Err(Violation::ZeroIncrement);
        }
        self.send_window = self.send_window.checked_add(increment as i32).ok_or(Violation::WindowOverflow)?;
        // Each waiting stream gets one turn, so the loop ends even if they are all listed again.
        for _ in 0..self.blocked.len() {
            if self.send_window <= 0 {
                break;
            }
            let Some(id) = self.blocked.pop_front() else { break };
            let Some(slot) = self.streams.find(id) else { continue };
            if let Some(queue) = &mut self.streams[slot].queue {
                queue.is_listed = false;
            }
            self.flush(slot);
        }
        Ok(())
    }

    /// Sends as much of a stream's queue as the windows permit.
    fn flush(&mut self, slot: Slot) {
        let stream = &mut self.streams[slot];
        if stream.queue.is_none() {
            return;
        }
        let (before, max) = (stream.send_window, self.peer.max_frame_bytes as usize);
        let sent = send_queue(stream, &mut self.send_window, max, self.now, &mut self.output);
        if stream.send_window < before {
            self.budgets.refill_for_useful_frame();
        }
        match sent {
            Sent::Some => self.list_if_blocked(slot),
            Sent::All(QueueEnd::Open) => {
                let stream = stream.id;
                self.notices.push_back(Event::Unblocked { stream });
            }
            Sent::All(QueueEnd::Data) => self.close_send(slot),
            Sent::All(QueueEnd::Trailers(trailers)) => {
                self.write_headers(slot, &trailers, true);
                self.close_send(slot);
            }
        }
    }

    /// Lists a stream that only the connection's window blocks.
    pub(super) fn list_if_blocked(&mut self, slot: Slot) {
        let stream = &mut self.streams[slot];
        if let Some(queue) = &mut stream.queue
            && stream.send_window > 0
            && !queue.is_listed
        {
            queue.is_listed = true;
            self.blocked.push_back(stream.id);
            // Reset streams stay listed; while the window is shut nothing else removes them.
            if self.blocked.len() > 2 * self.streams.len() + BLOCKED_SLACK {
                self.blocked.retain(|id| self.streams.find(*id).is_some());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::http2::frame::{FRAME_HEADER_BYTES, PREFACE, WINDOW_INITIAL, flag};
    use crate::session::http2::{Config, ErrorCode, HeadersBuilder};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use weft_core::Time;

    /// A client that obeys its windows, a server, and the server's owner.
    struct World {
        server: Connection,
        /// Bytes from the client that the server has not processed.
        wire: Vec<u8>,
        /// The client's windows, of the connection and of each stream that it has not ended.
        window: u32,
        windows: BTreeMap<StreamId, u32>,
        next_stream: StreamId,
        /// The owner's unreleased bytes, by stream.
        owed: Vec<(StreamId, u32)>,
    }

    impl World {
        fn new(config: Config) -> Self {
            let window = config.connection_window;
            let mut world = Self {
                server: Connection::new(config, Time(0)),
                wire: PREFACE.to_vec(),
                window,
                windows: BTreeMap::new(),
                next_stream: 1,
                owed: Vec::new(),
            };
            world.server.advance_output(world.server.output().len());
            world.send(kind::SETTINGS, 0, 0, &[]);
            world.send(kind::SETTINGS, flag::ACK, 0, &[]);
            world.deliver(usize::MAX);
            world
        }

        fn send(&mut self, kind: u8, flags: u8, stream: StreamId, payload: &[u8]) {
            let head = FrameHead { len: payload.len() as u32, kind, flags, stream };
            self.wire.extend_from_slice(&head.to_bytes());
            self.wire.extend_from_slice(payload);
        }

        fn open(&mut self) {
            // `:method: POST`, `:scheme: http`, `:path: /`.
            self.send(kind::HEADERS, flag::END_HEADERS, self.next_stream, &[0x83, 0x86, 0x84]);
            self.windows.insert(self.next_stream, self.server.config.initial_window);
            self.next_stream += 2;
        }

        /// Sends data with some padding, if the windows permit it.
        fn data(&mut self, pick: usize, n: u32, end: bool) {
            let Some((&stream, window)) = pick_of(&mut self.windows, pick) else { return };
            let n = n.min(*window).min(self.window);
            let Some(padded) = n.checked_sub(1) else { return };
            (*window, self.window) = (*window - n, self.window - n);
            let mut payload = vec![0; n as usize];
            payload[0] = (padded / 3).min(255) as u8;
            self.send(kind::DATA, flag::PADDED | if end { flag::END_STREAM } else { 0 }, stream, &payload);
            if end {
                self.windows.remove(&stream);
            }
        }

        fn client_resets(&mut self, pick: usize) {
            let Some((&stream, _)) = pick_of(&mut self.windows, pick) else { return };
            self.windows.remove(&stream);
            self.send(kind::RST_STREAM, 0, stream, &[0; 4]);
        }

        fn server_resets(&mut self, pick: usize) {
            let streams: Vec<_> = self.server.streams.iter().map(|s| s.id).collect();
            if let Some(stream) = streams.get(pick % streams.len().max(1)) {
                self.server.reset(*stream, ErrorCode::Cancel);
            }
        }

        fn release(&mut self, pick: usize, n: u32) {
            if self.owed.is_empty() {
                return;
            }
            let at = pick % self.owed.len();
            let (stream, owed) = &mut self.owed[at];
            let n = n.min(*owed);
            *owed -= n;
            self.server.release(*stream, n);
            if *owed == 0 {
                self.owed.swap_remove(at);
            }
        }

        /// Delivers up to `n` bytes, and the server's response to them.
        fn deliver(&mut self, n: usize) {
            let n = n.min(self.wire.len());
            let mut taken = 0;
            loop {
                let (used, event) = self.server.handle_input(Time(0), &self.wire[taken..n]).unwrap();
                taken += used;
                match event {
                    Some(Event::Data { stream, flow_len, .. }) => self.owed.push((stream, flow_len)),
                    None if used == 0 => break,
                    _ => {}
                }
            }
            self.wire.drain(..taken);
            self.receive_updates();
        }

        fn receive_updates(&mut self) {
            let output = self.server.output().to_vec();
            self.server.advance_output(output.len());
            let mut rest = &output[..];
            while let Some(head) = FrameHead::parse(rest) {
                let (payload, tail) = rest[FRAME_HEADER_BYTES..].split_at(head.len as usize);
                rest = tail;
                match (head.kind, head.stream) {
                    (kind::WINDOW_UPDATE, 0) => self.window += be_u32(payload),
                    (kind::WINDOW_UPDATE, stream) => {
                        self.windows.entry(stream).and_modify(|window| *window += be_u32(payload));
                    }
                    (kind::RST_STREAM, stream) => drop(self.windows.remove(&stream)),
                    _ => {}
                }
            }
        }

        /// Checks the invariants.
        fn check(&self) -> Result<(), TestCaseError> {
            let (config, window) = (&self.server.config, &self.server.recv_window);
            let owed: u32 = self.owed.iter().map(|(_, n)| n).sum();
            prop_assert!(window.held >= owed);
            prop_assert!(window.left <= config.connection_window && config.connection_window <= WINDOW_MAX);
            prop_assert!(
                window.left + window.held <= config.connection_held_max.max(config.connection_window)
            );
            for stream in self.server.streams.iter() {
                prop_assert!(stream.recv_window as u32 <= config.initial_window);
            }
            Ok(())
        }
    }

    fn pick_of(map: &mut BTreeMap<StreamId, u32>, pick: usize) -> Option<(&StreamId, &mut u32)> {
        let at = pick % map.len().max(1);
        map.iter_mut().nth(at)
    }

    #[test]
    fn reset_streams_leave_shut_window() {
        // If this fails, a peer that shuts the connection's window fills our memory with streams that it resets.
        let mut world = World::new(Config::server());
        let mut response = HeadersBuilder::new();
        response.push(b":status", b"200").unwrap();
        let response = response.build();
        let mut n_listed_max = 0;
        for _ in 0..900 {
            world.open();
            world.deliver(usize::MAX);
            let stream = world.next_stream - 2;
            world.server.send_headers(stream, &response, false).unwrap();
            world.server.send_data(stream, b"", &[0; 20_000], true).unwrap();
            n_listed_max = n_listed_max.max(world.server.blocked.len());
            world.client_resets(0);
            world.deliver(usize::MAX);
        }
        assert!((1..=BLOCKED_SLACK + 3).contains(&n_listed_max), "{n_listed_max}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn windows_never_leak_credit(
            held_max in WINDOW_INITIAL..400_000,
            steps in proptest::collection::vec((0u8..12, any::<usize>(), 0u32..16_000, 0usize..20_000), 1..300),
        ) {
            // If this fails, a connection slows down over its life until it stalls.
            let config = Config {
                connection_window: WINDOW_INITIAL,
                connection_held_max: held_max,
                initial_window: 30_000,
                ..Config::server()
            };
            let mut world = World::new(config);
            for (what, pick, n, chunk) in steps {
                match what {
                    0 => world.open(),
                    1..6 => world.data(pick, n, pick % 8 == 0),
                    6..10 => world.release(pick, n * 2),
                    10 => world.client_resets(pick),
                    _ => world.server_resets(pick),
                }
                world.deliver(chunk);
                world.check()?;
            }
            world.deliver(usize::MAX);
            prop_assert_eq!(world.server.recv_window.held, world.owed.iter().map(|(_, n)| n).sum::<u32>());
            while !world.windows.is_empty() {
                world.client_resets(0);
            }
            world.deliver(usize::MAX);
            while !world.owed.is_empty() {
                world.release(0, u32::MAX);
            }
            world.receive_updates();
            let window = &world.server.recv_window;
            prop_assert_eq!((window.held, window.left), (0, world.window));
            prop_assert!(window.max - window.left < window.max / 2, "the peer is owed half of the window");
            // The owner still has to answer streams that the client ended.
            while !world.server.streams.is_empty() {
                world.server_resets(0);
            }
            prop_assert_eq!(world.server.counters.iter().count(), 0);
        }
    }
}
