//! Sends the owner's headers, data and resets as frames.

use std::fmt;

use weft_core::Time;

use super::output::Output;
use super::streams::{Ending, Half, Queue, QueueEnd, Slot, Stream};
use super::{Connection, Drain, Role, StreamId, limits};
use crate::session::http2::frame::{ErrorCode, STREAM_ID_MAX, kind};
use crate::session::http2::headers::Headers;

/// Why something could not be sent. The connection continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendError {
    /// The stream has ended or was reset; its [`super::Event::Reset`] may not be polled yet.
    UnknownStream,
    /// The stream's end was already sent, or its headers were not.
    WrongState,
    /// A request on a newer stream was sent first, which closed this one.
    OutOfOrder,
    /// The list exceeds the peer's limit.
    HeaderListTooLarge,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownStream => "the stream has ended",
            Self::WrongState => "the stream has no place for this",
            Self::OutOfOrder => "a newer stream was used first",
            Self::HeaderListTooLarge => "the header list is larger than the peer permits",
        })
    }
}

impl std::error::Error for SendError {}

/// The payload of the PING that shows when a client has seen the GOAWAY.
pub(super) const DRAIN_PING: [u8; 8] = *b"weftdrai";

impl Connection {
    /// Opens a stream, for a client. `None` if the peer's limit, ours, or the end of the connection forbids it. Send
    /// requests in the order in which their streams were opened.
    pub fn open(&mut self) -> Option<StreamId> {
        if self.available_streams() == 0 {
            return None;
        }
        let id = self.stream_mark;
        self.stream_mark += 2;
        let recv_window = self.new_recv_window();
        self.streams.insert(Stream::new(id, self.peer.initial_window, recv_window));
        self.counters.streams_opened += 1;
        Some(id)
    }

    /// Sends a request, a response, or, after one of these and with `end_stream`, trailers. Trailers wait for queued
    /// data.
    ///
    /// # Errors
    /// The stream cannot accept them; nothing was sent.
    pub fn send_headers(
        &mut self,
        stream: StreamId,
        headers: &Headers,
        end_stream: bool,
    ) -> Result<(), SendError> {
        let slot = self.streams.find(stream).ok_or(SendError::UnknownStream)?;
        if headers.list_bytes() > self.peer.max_header_list_bytes as usize {
            return Err(SendError::HeaderListTooLarge);
        }
        match self.streams[slot].send {
            Half::Idle => self.begin(slot, headers)?,
            Half::Open if end_stream => {}
            Half::Open | Half::Closed => return Err(SendError::WrongState),
        }
        if let Some(queue) = &mut self.streams[slot].queue {
            if !matches!(queue.end, QueueEnd::Open) {
                return Err(SendError::WrongState);
            }
            queue.end = QueueEnd::Trailers(Box::new(headers.duplicate()));
            return Ok(());
        }
        self.write_headers(slot, headers, end_stream);
        if end_stream {
            self.close_send(slot);
        }
        Ok(())
    }

    /// Sends `prefix` and `data` as one body part. What exceeds the windows is queued; see [`Self::queued`] and
    /// [`super::Event::Unblocked`].
    ///
    /// # Errors
    /// The stream cannot accept data; nothing was sent.
    pub fn send_data(
        &mut self,
        stream: StreamId,
        prefix: &[u8],
        data: &[u8],
        end_stream: bool,
    ) -> Result<(), SendError> {
        let slot = self.streams.find(stream).ok_or(SendError::UnknownStream)?;
        let stream = &mut self.streams[slot];
        if stream.send != Half::Open {
            return Err(SendError::WrongState);
        }
        let len = prefix.len() + data.len();
        let window = stream.send_window.min(self.send_window).max(0) as usize;
        if stream.queue.is_some() || len > window || len > self.peer.max_frame_bytes as usize {
            return self.send_in_parts(slot, prefix, data, end_stream);
        }
        if len > 0 || end_stream {
            self.output.write_data(stream.id, prefix, data, end_stream);
            stream.send_window -= len as i32;
            self.send_window -= len as i32;
            self.budgets.refill_for_useful_frame();
        }
        if end_stream {
            self.close_send(slot);
        }
        Ok(())
    }

    /// Answers a request with headers only, before any work for it, and ends its stream. Such a request costs the peer
    /// no more than one that it resets, so it earns no reset (see [`limits::RESETS_PER_S`]). Unknown streams are
    /// ignored.
    pub fn refuse(&mut self, stream: StreamId, headers: &Headers) {
        let Some(slot) = self.streams.find(stream) else { return };
        let fits = headers.list_bytes() <= self.peer.max_header_list_bytes as usize;
        if !fits || self.streams[slot].send != Half::Idle || self.begin(slot, headers).is_err() {
            return self.reset(stream, ErrorCode::Cancel);
        }
        self.write_headers(slot, headers, true);
        let is_whole = self.streams[slot].recv == Half::Closed;
        self.streams.remove(slot, if is_whole { Ending::Complete } else { Ending::ResetByUs });
        if !is_whole {
            // RFC 9113 section 8.1: a server that has answered completely may ask the client to stop sending.
            self.write_reset(stream, ErrorCode::NoError);
        }
    }

    /// Resets a stream. Unknown streams are ignored: they may just have ended.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        let Some(slot) = self.streams.find(stream) else { return };
        let is_known_to_peer = !self.is_idle(stream);
        self.streams.remove(slot, Ending::ResetByUs);
        if is_known_to_peer {
            self.write_reset(stream, code);
        }
    }

    /// Accepts no new streams and lets the others finish; [`Self::is_closed`] returns true once they have.
    ///
    /// A server without an error first accepts requests that are in flight (RFC 9113 section 6.8): until its client has
    /// answered a PING, at most for [`limits::DRAIN_TIME_MAX`].
    pub fn go_away(&mut self, now: Time, code: ErrorCode) {
        if matches!(self.drain, Drain::Ours(_) | Drain::Announced) {
            return;
        }
        if self.config.role == Role::Server && code == ErrorCode::NoError {
            self.write_go_away(STREAM_ID_MAX, code);
            self.output.write_frame(kind::PING, 0, 0, &DRAIN_PING);
            self.drain = Drain::Announced;
            self.timers.drain_at = Some(now + limits::DRAIN_TIME_MAX);
            return;
        }
        self.finish_drain(code);
    }

    /// Announces the last stream.
    pub(super) fn finish_drain(&mut self, code: ErrorCode) {
        let last = self.last_peer_stream();
        self.write_go_away(last, code);
        self.drain = Drain::Ours(last);
        self.timers.drain_at = None;
    }

    /// Appends a header block.
    #[inline]
    pub(super) fn write_headers(&mut self, slot: Slot, headers: &Headers, end_stream: bool) {
        let (id, max) = (self.streams[slot].id, self.peer.max_frame_bytes as usize);
        let encoder = &mut self.encoder;
        self.output.write_headers(id, end_stream, max, |out| encoder.encode(headers, out));
        self.budgets.refill_for_useful_frame();
        self.timers.is_trimmed = false;
    }

    /// Our direction of the stream has ended.
    #[inline]
    pub(super) fn close_send(&mut self, slot: Slot) {
        let stream = &mut self.streams[slot];
        stream.send = Half::Closed;
        if stream.recv == Half::Closed {
            self.remove(slot, Ending::Complete);
        }
    }

    /// Checks the first headers of a stream.
    #[inline]
    fn begin(&mut self, slot: Slot, headers: &Headers) -> Result<(), SendError> {
        let stream = &mut self.streams[slot];
        if self.config.role == Role::Client {
            if stream.id < self.last_request {
                return Err(SendError::OutOfOrder);
            }
            self.last_request = stream.id;
            stream.is_head_request = headers.method() == Some(b"HEAD");
        }
        // Another response follows an informational one.
        if !matches!(headers.status(), Some(100..=199)) {
            stream.send = Half::Open;
        }
        Ok(())
    }

    /// Queues the bytes, then sends as much of the queue as the windows permit.
    fn send_in_parts(
        &mut self,
        slot: Slot,
        prefix: &[u8],
        data: &[u8],
        end_stream: bool,
    ) -> Result<(), SendError> {
        let (stream, now) = (&mut self.streams[slot], self.now);
        let was_waiting = stream.queue.is_some();
        let queue = stream.queue.get_or_insert_with(|| {
            let (bytes, end) = (Vec::new(), QueueEnd::Open);
            Box::new(Queue { bytes, sent: 0, end, since: now, is_listed: false })
        });
        if !matches!(queue.end, QueueEnd::Open) {
            return Err(SendError::WrongState);
        }
        queue.bytes.extend_from_slice(prefix);
        queue.bytes.extend_from_slice(data);
        if end_stream {
            queue.end = QueueEnd::Data;
        }
        if was_waiting {
            return Ok(());
        }
        let max = self.peer.max_frame_bytes as usize;
        self.budgets.refill_for_useful_frame();
        match send_queue(stream, &mut self.send_window, max, now, &mut self.output) {
            Sent::All(_) if end_stream => self.close_send(slot),
            Sent::All(_) => {}
            Sent::Some => {
                self.list_if_blocked(slot);
                self.timers.record_stall(now + self.config.stall_timeout);
            }
        }
        Ok(())
    }
}

/// How much of a queue was sent.
pub(super) enum Sent {
    Some,
    /// All of it; the queue is removed, and this follows.
    All(QueueEnd),
}

/// Sends as much of the stream's queue, which must exist, as the windows permit.
pub(super) fn send_queue(
    stream: &mut Stream,
    connection_window: &mut i32,
    max_frame_bytes: usize,
    now: Time,
    output: &mut Output,
) -> Sent {
    let Some(mut queue) = stream.queue.take() else { return Sent::All(QueueEnd::Open) };
    loop {
        let waiting = queue.waiting();
        let window = stream.send_window.min(*connection_window).max(0) as usize;
        let n = waiting.len().min(window).min(max_frame_bytes);
        let is_last = n == waiting.len();
        if n == 0 && !is_last {
            break;
        }
        let end_stream = is_last && matches!(queue.end, QueueEnd::Data);
        if n > 0 || end_stream {
            output.write_data(stream.id, &[], &waiting[..n], end_stream);
        }
        queue.sent += n;
        queue.since = now;
        stream.send_window -= n as i32;
        *connection_window -= n as i32;
        if is_last {
            return Sent::All(queue.end);
        }
    }
    // Compact once there are as many sent bytes as waiting ones.
    if queue.sent * 2 >= queue.bytes.len() {
        queue.bytes.drain(..queue.sent);
        queue.sent = 0;
    }
    stream.queue = Some(queue);
    Sent::Some
}
