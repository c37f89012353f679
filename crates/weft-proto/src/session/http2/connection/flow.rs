//! Flow control in both directions (RFC 9113 section 5.2).

use super::limits::Violation;
use super::send::{Sent, send_queue};
use super::streams::{Half, QueueEnd, Slot};
use super::{Connection, Event, StreamId};
use crate::session::http2::frame::{FrameHead, STREAM_ID_MAX, WINDOW_MAX, be_u32, kind};

/// What a peer may send on all streams together.
pub(super) struct RecvWindow {
    max: u32,
    left: u32,
    /// Bytes that were consumed and the peer does not know of yet.
    credit: u32,
}

impl RecvWindow {
    pub(super) fn new(max: u32) -> Self {
        Self { max, left: max, credit: 0 }
    }

    pub(super) fn debit(&mut self, n: u32) -> Result<(), Violation> {
        self.left = self.left.checked_sub(n).ok_or(Violation::ConnectionWindow)?;
        Ok(())
    }

    /// Notes that `n` bytes were consumed. Some increment once that is worth telling.
    fn release(&mut self, n: u32) -> Option<u32> {
        // Never more than was debited, whatever the owner says.
        self.credit += n.min(self.max - self.left - self.credit);
        if self.credit < self.max / 2 || self.credit == 0 {
            return None;
        }
        let increment = std::mem::take(&mut self.credit);
        self.left += increment;
        Some(increment)
    }
}

impl Connection {
    /// The owner has consumed `n` received bytes of `stream` ([`Event::Data`]'s `flow_len`), and the peer may
    /// send as many more. The peer is told at every half window.
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
        // Before the peer knows of a smaller window, it has more than we want to give.
        let increment = stream.credit.min(room);
        if increment > 0 {
            stream.credit -= increment;
            stream.recv_window += increment as i32;
            let id = stream.id;
            self.output.write_frame(kind::WINDOW_UPDATE, 0, id, &increment.to_be_bytes());
        }
    }

    /// Bytes of `stream` that wait for a window, trailers not counted.
    pub fn queued(&self, stream: StreamId) -> usize {
        let queue = self.streams.find(stream).and_then(|slot| self.streams[slot].queue.as_ref());
        queue.map_or(0, |q| q.waiting().len())
    }

    /// Gives bytes back to the connection's window alone.
    #[inline]
    pub(super) fn release_connection(&mut self, n: u32) {
        if let Some(increment) = self.recv_window.release(n) {
            self.output.write_frame(kind::WINDOW_UPDATE, 0, 0, &increment.to_be_bytes());
        }
    }

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
            // RFC 9113 section 5.1: it may have been on its way when the stream ended.
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

    /// The peer changed the window that streams start with, which also changes those of open streams by the
    /// difference (RFC 9113 section 6.9.2).
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

    fn grow_connection(&mut self, increment: u32) -> Result<(), Violation> {
        if increment == 0 {
            return Err(Violation::ZeroIncrement);
        }
        self.send_window = self.send_window.checked_add(increment as i32).ok_or(Violation::WindowOverflow)?;
        // Each waiting stream gets one turn, so the loop ends even if they all come back.
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

    /// Sends what the windows admit of a stream's queue.
    fn flush(&mut self, slot: Slot) {
        let stream = &mut self.streams[slot];
        if stream.queue.is_none() {
            return;
        }
        let (before, max) = (stream.send_window, self.peer.max_frame_bytes as usize);
        let sent = send_queue(stream, &mut self.send_window, max, self.now, &mut self.output);
        if stream.send_window < before {
            self.budgets.note_useful_frame();
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

    /// Gives a stream with a window of its own a turn at the connection's.
    pub(super) fn list_if_blocked(&mut self, slot: Slot) {
        let stream = &mut self.streams[slot];
        if let Some(queue) = &mut stream.queue
            && stream.send_window > 0
            && !queue.is_listed
        {
            queue.is_listed = true;
            self.blocked.push_back(stream.id);
        }
    }
}
