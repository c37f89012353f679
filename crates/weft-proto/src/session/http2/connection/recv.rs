//! Receives frames from the peer, and turns them into events for the owner.

use std::rc::Rc;

use weft_core::Time;

use super::limits::{CONTINUATIONS_MAX, HEADER_BLOCK_BYTES_MAX, OUTPUT_BYTES_MAX, Violation};
use super::send::DRAIN_PING;
use super::streams::{Ending, Half, Slot, Stream};
use super::{Connection, ConnectionError, Drain, Event, Phase, ResetBy, Role, StreamId};
use crate::session::http2::frame::{
    ErrorCode, FRAME_HEADER_BYTES, FrameHead, PREFACE, STREAM_ID_MAX, be_u32, flag, kind,
};
use crate::session::http2::headers::{Headers, Malformed, Shape};

/// The position in the input between two calls.
#[derive(Default)]
pub(super) struct Parser {
    payload: Payload,
    /// An incomplete header block.
    block: Option<Box<Block>>,
}

/// The remaining payload of a frame whose header was consumed.
#[derive(Default)]
enum Payload {
    #[default]
    None,
    Data(DataPayload),
    /// This many bytes to ignore.
    Skip(u32),
}

#[derive(Clone, Copy)]
struct DataPayload {
    stream: StreamId,
    /// Remaining bytes of data.
    left: u32,
    /// Bytes of padding after the data.
    padding: u32,
    /// Bytes besides the data that count for flow control: the padding and its length.
    overhead: u32,
    end_stream: bool,
}

/// A header block that waits for CONTINUATION frames.
struct Block {
    head: BlockHead,
    bytes: Vec<u8>,
    n_continuations: u32,
}

#[derive(Clone, Copy)]
struct BlockHead {
    stream: StreamId,
    end_stream: bool,
    is_self_dependent: bool,
}

type Received<'i> = Result<Option<Event<'i>>, Violation>;

impl Connection {
    /// Processes the peer's bytes: up to the next event, or all complete frames.
    ///
    /// Returns the number of bytes consumed, and an event. If nothing is consumed and there is no event, more bytes are
    /// needed: keep the rest and call again. A buffer of `max_frame_size` plus nine bytes always suffices; DATA also
    /// passes through a smaller one.
    ///
    /// # Errors
    /// A violation that ends the connection. The output then ends with a GOAWAY.
    pub fn handle_input<'i>(
        &mut self,
        now: Time,
        input: &'i [u8],
    ) -> Result<(usize, Option<Event<'i>>), ConnectionError> {
        self.now = now;
        if self.phase == Phase::Failed {
            return Ok((input.len(), None));
        }
        if !input.is_empty() {
            self.timers.record_input(now);
            self.budgets.refill(now);
        }
        let mut rest = input;
        match self.next_event(&mut rest) {
            Ok(event) => Ok((input.len() - rest.len(), event)),
            Err(violation) => Err(self.fail(violation)),
        }
    }

    /// Consumes input up to the next event, and moves `rest` past it. `None` if more input is needed.
    fn next_event<'i>(&mut self, rest: &mut &'i [u8]) -> Received<'i> {
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Ok(Some(notice));
            }
            match self.parser.payload {
                Payload::None => {
                    let before = rest.len();
                    let event = self.frame(rest)?;
                    if event.is_some() || rest.len() == before {
                        // A frame that fails a stream leaves a notice and consumes something.
                        return Ok(event);
                    }
                }
                Payload::Data(payload) => {
                    if payload.left > 0 && rest.is_empty() {
                        return Ok(None);
                    }
                    if let Some(event) = self.data(payload, rest) {
                        return Ok(Some(event));
                    }
                }
                Payload::Skip(n) => {
                    let skipped = (n as usize).min(rest.len());
                    *rest = &rest[skipped..];
                    let left = n - skipped as u32;
                    self.parser.payload = if left == 0 { Payload::None } else { Payload::Skip(left) };
                    if left > 0 {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Handles the frame at the start of `rest` if it is complete; of DATA, the header suffices.
    fn frame<'i>(&mut self, rest: &mut &'i [u8]) -> Received<'i> {
        if self.phase == Phase::Preface && !self.preface(rest)? {
            return Ok(None);
        }
        // The first frame is SETTINGS, which is shorter than 64 KiB.
        if self.phase == Phase::Settings && rest.first().is_some_and(|byte| *byte != 0) {
            return detect_other_protocol(rest).map_or(Ok(None), Err);
        }
        let Some(head) = FrameHead::parse(rest) else { return Ok(None) };
        self.check_place(head)?;
        let body = &rest[FRAME_HEADER_BYTES..];
        if head.kind == kind::DATA {
            let is_padded = head.has(flag::PADDED);
            if is_padded && head.len == 0 {
                return Err(Violation::Padding);
            }
            let pad = if is_padded { body.first().copied() } else { Some(0) };
            let Some(pad) = pad else { return Ok(None) };
            *rest = &body[usize::from(is_padded)..];
            self.data_head(head, u32::from(pad))?;
            return Ok(None);
        }
        if head.kind > kind::CONTINUATION {
            // RFC 9113 section 4.1: frames of unknown types are ignored.
            self.budgets.controls.spend(Violation::ControlFlood)?;
            *rest = body;
            self.parser.payload = Payload::Skip(head.len);
            return Ok(None);
        }
        let Some((payload, tail)) = body.split_at_checked(head.len as usize) else { return Ok(None) };
        *rest = tail;
        match head.kind {
            kind::HEADERS => return self.headers(head, payload),
            kind::RST_STREAM => return self.on_reset(head, payload),
            kind::GOAWAY => return self.on_go_away(head, payload),
            kind::WINDOW_UPDATE => self.on_window_update(head, payload)?,
            kind::PING => self.on_ping(head, payload)?,
            kind::PRIORITY => self.on_priority(head, payload)?,
            kind::SETTINGS => {
                self.budgets.controls.spend(Violation::ControlFlood)?;
                self.on_settings(head, payload)?;
            }
            // A client may not push, and our settings forbid it to a server.
            kind::PUSH_PROMISE => return Err(Violation::PushPromise),
            _ => return self.continuation(head, payload),
        }
        Ok(None)
    }

    /// Consumes the client's preface. Returns false if it is incomplete.
    fn preface(&mut self, rest: &mut &[u8]) -> Result<bool, Violation> {
        let n = rest.len().min(PREFACE.len());
        if rest[..n] != PREFACE[..n] {
            return detect_other_protocol(rest).map_or(Ok(false), Err);
        }
        if n == PREFACE.len() {
            *rest = &rest[n..];
            self.phase = Phase::Settings;
            // Not earlier: a peer with another protocol could not read its answer after our settings.
            self.greet();
        }
        Ok(n == PREFACE.len())
    }

    /// Checks what the frame header alone shows.
    #[inline]
    fn check_place(&self, head: FrameHead) -> Result<(), Violation> {
        if head.len > self.config.max_frame_size {
            return Err(Violation::FrameSize);
        }
        if self.phase == Phase::Settings && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(Violation::BadPreface);
        }
        // RFC 9113 section 6.10: no other frame may interrupt a header block.
        let is_within = self.parser.block.as_ref().is_some_and(|block| block.head.stream == head.stream);
        if (head.kind == kind::CONTINUATION) != self.parser.block.is_some()
            || (head.kind == kind::CONTINUATION && !is_within)
        {
            return Err(Violation::UnexpectedFrame);
        }
        Ok(())
    }

    /// Processes the header of a DATA frame, after its padding length.
    fn data_head(&mut self, head: FrameHead, pad: u32) -> Result<(), Violation> {
        if head.stream == 0 {
            return Err(Violation::UnexpectedFrame);
        }
        let overhead = if head.has(flag::PADDED) { pad + 1 } else { 0 };
        let left = head.len.checked_sub(overhead).ok_or(Violation::Padding)?;
        self.recv_window.take(head.len)?;
        let end_stream = head.has(flag::END_STREAM);
        if left == 0 && !end_stream {
            self.budgets.controls.spend(Violation::ControlFlood)?;
        }
        let payload = DataPayload { stream: head.stream, left, padding: pad, overhead, end_stream };
        match self.admit_data(head, left)? {
            Ok(()) => {
                self.parser.payload = Payload::Data(payload);
                self.grow_recv_window();
                if left > 0 || end_stream {
                    self.budgets.refill_for_useful_frame();
                    self.timers.record_message();
                }
            }
            Err(fault) => {
                self.parser.payload = Payload::Skip(left + pad);
                self.release_connection(head.len);
                if let Some(violation) = fault {
                    self.fail_stream(head.stream, violation)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a stream accepts a DATA frame. If not: the violation of the stream, or nothing for a late frame.
    fn admit_data(&mut self, head: FrameHead, len: u32) -> Result<Result<(), Option<Violation>>, Violation> {
        if self.is_idle(head.stream) {
            return Err(Violation::IdleStream);
        }
        let Some(slot) = self.streams.find(head.stream) else {
            return match self.streams.ending(head.stream) {
                Some(Ending::Complete) => Err(Violation::StreamClosed),
                Some(Ending::ResetByPeer) => Ok(Err(Some(Violation::StreamClosed))),
                // It was in flight when we reset the stream.
                Some(Ending::ResetByUs) | None => Ok(Err(None)),
            };
        };
        let stream = &mut self.streams[slot];
        match stream.recv {
            Half::Idle => return Ok(Err(Some(Violation::MessageOrder))),
            Half::Open => {}
            Half::Closed => return Ok(Err(Some(Violation::StreamClosed))),
        }
        if i64::from(head.len) > i64::from(stream.recv_window) {
            return Ok(Err(Some(Violation::StreamWindow)));
        }
        stream.recv_window -= head.len as i32;
        if stream.body_left != Stream::ANY_LENGTH {
            let Some(body_left) = stream.body_left.checked_sub(u64::from(len)) else {
                return Ok(Err(Some(Violation::ContentLength)));
            };
            stream.body_left = body_left;
            if head.has(flag::END_STREAM) && body_left > 0 {
                return Ok(Err(Some(Violation::ContentLength)));
            }
        }
        Ok(Ok(()))
    }

    /// Delivers the available data of a DATA frame.
    fn data<'i>(&mut self, payload: DataPayload, rest: &mut &'i [u8]) -> Option<Event<'i>> {
        let n = (payload.left as usize).min(rest.len());
        let (data, tail) = rest.split_at(n);
        *rest = tail;
        let DataPayload { stream, left, padding, overhead, end_stream } = payload;
        let left = left - n as u32;
        let is_last = left == 0;
        self.parser.payload = match is_last {
            true if padding == 0 => Payload::None,
            true => Payload::Skip(padding),
            false => Payload::Data(DataPayload { left, ..payload }),
        };
        let flow_len = n as u32 + if is_last { overhead } else { 0 };
        // The owner may have reset the stream after the frame header arrived.
        let Some(slot) = self.streams.find(stream) else {
            self.release_connection(flow_len);
            return None;
        };
        let end_stream = is_last && end_stream;
        if n == 0 && !end_stream {
            self.release(stream, flow_len);
            return None;
        }
        if end_stream {
            self.close_recv(slot);
        }
        Some(Event::Data { stream, data, flow_len, end_stream })
    }

    /// Handles HEADERS. Returns the event once the header block is complete; until then, keeps the fragment.
    fn headers<'i>(&mut self, head: FrameHead, payload: &[u8]) -> Received<'i> {
        if head.stream == 0 {
            return Err(Violation::UnexpectedFrame);
        }
        let (fragment, dependency) = header_fragment(head, payload)?;
        let block_head = BlockHead {
            stream: head.stream,
            end_stream: head.has(flag::END_STREAM),
            is_self_dependent: dependency == Some(head.stream),
        };
        self.check_block(fragment.len())?;
        if head.has(flag::END_HEADERS) {
            return self.block(block_head, fragment);
        }
        let bytes = fragment.to_vec();
        self.parser.block = Some(Box::new(Block { head: block_head, bytes, n_continuations: 0 }));
        Ok(None)
    }

    /// Handles CONTINUATION: appends its fragment to the open header block. Returns the event if the block is
    /// complete.
    fn continuation<'i>(&mut self, head: FrameHead, payload: &[u8]) -> Received<'i> {
        let Some(mut block) = self.parser.block.take() else { return Err(Violation::UnexpectedFrame) };
        block.n_continuations += 1;
        if block.n_continuations > CONTINUATIONS_MAX {
            return Err(Violation::ContinuationFlood);
        }
        self.check_block(block.bytes.len() + payload.len())?;
        block.bytes.extend_from_slice(payload);
        if head.has(flag::END_HEADERS) {
            return self.block(block.head, &block.bytes);
        }
        self.parser.block = Some(block);
        Ok(None)
    }

    /// Checks the size of a header block, which is gathered even if its list is too large.
    fn check_block(&self, len: usize) -> Result<(), Violation> {
        let max = self.config.max_header_list_size.max(HEADER_BLOCK_BYTES_MAX);
        if len > max as usize { Err(Violation::HeaderBlock) } else { Ok(()) }
    }

    /// Processes a complete header block. It is always decoded, to keep the table in step.
    fn block<'i>(&mut self, head: BlockHead, block: &[u8]) -> Received<'i> {
        let headers = self.decoder.decode(block)?;
        self.budgets.refill_for_useful_frame();
        self.timers.record_message();
        self.timers.is_trimmed = false;
        let accepted = match self.streams.find(head.stream) {
            Some(slot) => self.more_headers(slot, head, headers)?,
            None => self.first_headers(head, headers)?,
        };
        match accepted {
            Ok(event) => Ok(event),
            Err(violation) => {
                self.fail_stream(head.stream, violation)?;
                Ok(None)
            }
        }
    }

    /// Headers on a stream that is not in the table: a new request, or late or wrong ones.
    fn first_headers<'i>(&mut self, head: BlockHead, headers: Option<Rc<Headers>>) -> Accepted<'i> {
        let stream = head.stream;
        if self.config.role == Role::Client {
            // A response to a stream that we reset.
            return if self.is_idle(stream) { Err(Violation::IdleStream) } else { Ok(Ok(None)) };
        }
        if stream.is_multiple_of(2) {
            return Err(Violation::StreamId);
        }
        if stream <= self.stream_mark {
            return match self.streams.ending(stream) {
                Some(Ending::ResetByUs) => Ok(Ok(None)),
                Some(Ending::Complete | Ending::ResetByPeer) => Err(Violation::StreamClosed),
                // RFC 9113 section 5.1.1: a newer stream has closed it.
                None => Err(Violation::StreamId),
            };
        }
        if let Drain::Ours(_) = self.drain {
            // RFC 9113 section 6.8: it was in flight when we announced the last stream. Later frames on it are ignored
            // too.
            self.stream_mark = stream;
            self.streams.remember(stream, Ending::ResetByUs);
            return Ok(Ok(None));
        }
        self.stream_mark = stream;
        if self.output.pending().len() > OUTPUT_BYTES_MAX {
            return Err(Violation::OutputFlood);
        }
        if self.streams.len() >= self.config.max_concurrent_streams as usize {
            return Ok(Err(Violation::ConcurrentStreams));
        }
        if head.is_self_dependent {
            return Ok(Err(Violation::SelfDependency));
        }
        let Some(headers) = headers else { return Ok(Err(Violation::HeaderList)) };
        match headers.shape() {
            Ok(Shape::Request) => {}
            Ok(Shape::Response | Shape::Trailers) => return Ok(Err(Violation::MessageOrder)),
            Err(fault) => return Ok(Err(fault.into())),
        }
        let mut state = Stream::new(stream, self.peer.initial_window, self.new_recv_window());
        state.recv = if head.end_stream { Half::Closed } else { Half::Open };
        state.body_left = headers.content_length().unwrap_or(Stream::ANY_LENGTH);
        if head.end_stream && !state.is_body_complete() {
            return Ok(Err(Violation::ContentLength));
        }
        self.streams.insert(state);
        self.counters.streams_opened += 1;
        Ok(Ok(Some(Event::Headers { stream, headers, end_stream: head.end_stream, trailers: false })))
    }

    /// Headers on a stream in the table: a response, or trailers.
    fn more_headers<'i>(
        &mut self,
        slot: Slot,
        head: BlockHead,
        headers: Option<Rc<Headers>>,
    ) -> Accepted<'i> {
        if self.is_idle(head.stream) {
            return Err(Violation::IdleStream);
        }
        if head.is_self_dependent {
            return Ok(Err(Violation::SelfDependency));
        }
        let state = &mut self.streams[slot];
        if state.recv == Half::Closed {
            return Ok(Err(Violation::StreamClosed));
        }
        let Some(headers) = headers else { return Ok(Err(Violation::HeaderList)) };
        let trailers = state.recv == Half::Open;
        match check_message(state, head.end_stream, &headers) {
            Ok(Part::Skipped) => return Ok(Ok(None)),
            Ok(Part::Kept) => {}
            Err(violation) => return Ok(Err(violation)),
        }
        if head.end_stream {
            self.close_recv(slot);
        }
        let (stream, end_stream) = (head.stream, head.end_stream);
        Ok(Ok(Some(Event::Headers { stream, headers, end_stream, trailers })))
    }

    /// The peer's direction of the stream has ended.
    #[inline]
    fn close_recv(&mut self, slot: Slot) {
        let stream = &mut self.streams[slot];
        stream.recv = Half::Closed;
        if stream.send == Half::Closed {
            self.remove(slot, Ending::Complete);
        }
    }

    /// Handles RST_STREAM: removes the stream, and reports the reset unless the stream has already ended.
    fn on_reset<'i>(&mut self, head: FrameHead, payload: &[u8]) -> Received<'i> {
        if payload.len() != 4 {
            return Err(Violation::FrameSize);
        }
        if self.is_idle(head.stream) {
            return Err(Violation::IdleStream);
        }
        let stream = head.stream;
        if self.config.role == Role::Server {
            self.budgets.resets.spend(Violation::RapidReset)?;
        }
        let Some(slot) = self.streams.find(stream) else {
            self.budgets.controls.spend(Violation::ControlFlood)?;
            return Ok(None);
        };
        self.remove(slot, Ending::ResetByPeer);
        self.counters.resets_received += 1;
        let code = ErrorCode::from_u32(be_u32(payload));
        Ok(Some(Event::Reset { stream, by: ResetBy::Peer(code) }))
    }

    /// Handles PING: answers a request. The answer to the PING after a GOAWAY finishes the drain.
    fn on_ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Violation> {
        if head.stream != 0 {
            return Err(Violation::UnexpectedFrame);
        }
        if payload.len() != 8 {
            return Err(Violation::FrameSize);
        }
        self.budgets.controls.spend(Violation::ControlFlood)?;
        if !head.has(flag::ACK) {
            self.output.write_pong(payload);
            return self.check_output();
        }
        if payload == DRAIN_PING && self.drain == Drain::Announced {
            self.finish_drain(ErrorCode::NoError);
        }
        Ok(())
    }

    /// RFC 9113 section 5.3.2: priorities are deprecated and ignored.
    fn on_priority(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Violation> {
        if head.stream == 0 {
            return Err(Violation::UnexpectedFrame);
        }
        self.budgets.controls.spend(Violation::ControlFlood)?;
        let violation = match payload.len() {
            5 if be_u32(payload) & STREAM_ID_MAX != head.stream => return Ok(()),
            5 => Violation::SelfDependency,
            _ => Violation::FrameSize,
        };
        // A stream error; but resetting an idle stream would be a violation of ours.
        if self.is_idle(head.stream) { Err(violation) } else { self.fail_stream(head.stream, violation) }
    }

    /// Handles GOAWAY: begins to drain. A client also removes the streams that the server has not processed.
    fn on_go_away<'i>(&mut self, head: FrameHead, payload: &[u8]) -> Received<'i> {
        if head.stream != 0 {
            return Err(Violation::UnexpectedFrame);
        }
        if payload.len() < 8 {
            return Err(Violation::FrameSize);
        }
        self.budgets.controls.spend(Violation::ControlFlood)?;
        let last_stream = be_u32(payload) & STREAM_ID_MAX;
        if self.drain == Drain::No {
            self.drain = Drain::Peers;
        }
        if self.config.role == Role::Client {
            let untouched: Vec<_> =
                self.streams.iter().map(|s| s.id).filter(|&id| id > last_stream).collect();
            for slot in untouched.into_iter().filter_map(|id| self.streams.find(id)).collect::<Vec<_>>() {
                self.remove(slot, Ending::ResetByPeer);
            }
        }
        Ok(Some(Event::GoAway { last_stream, code: ErrorCode::from_u32(be_u32(&payload[4..])) }))
    }
}

/// The outer error ends the connection, the inner one the stream.
type Accepted<'i> = Result<Result<Option<Event<'i>>, Violation>, Violation>;

/// The role of a header list in its message.
enum Part {
    Kept,
    /// An informational response.
    Skipped,
}

/// Checks the position of a response or of trailers in the stream's message, and records it.
fn check_message(stream: &mut Stream, end_stream: bool, headers: &Headers) -> Result<Part, Violation> {
    let shape = headers.shape().map_err(|_: Malformed| Violation::MalformedHeaders)?;
    match (stream.recv, shape) {
        (Half::Open, Shape::Trailers) if end_stream => {
            return if stream.is_body_complete() { Ok(Part::Kept) } else { Err(Violation::ContentLength) };
        }
        (Half::Idle, Shape::Response) => {}
        _ => return Err(Violation::MessageOrder),
    }
    // RFC 9113 section 8.1: an informational response never ends a stream. HTTP/2 has no 101.
    match headers.status() {
        Some(101) => return Err(Violation::MalformedHeaders),
        Some(100..=199) if end_stream => return Err(Violation::MessageOrder),
        Some(100..=199) => return Ok(Part::Skipped),
        _ => {}
    }
    stream.recv = Half::Open;
    let has_no_body = stream.is_head_request || headers.status() == Some(304);
    if !has_no_body {
        stream.body_left = headers.content_length().unwrap_or(Stream::ANY_LENGTH);
    }
    if end_stream && !stream.is_body_complete() {
        return Err(Violation::ContentLength);
    }
    Ok(Part::Kept)
}

/// How HTTP/1 messages begin.
const HTTP1: [&[u8]; 10] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"CONNECT ",
    b"OPTIONS ",
    b"TRACE ",
    b"PATCH ",
    b"HTTP/",
];

/// The other protocol that these first bytes belong to: a TLS record, which begins with its type and the major version;
/// an HTTP/1 message; or another. `None` if more bytes are needed.
fn detect_other_protocol(first: &[u8]) -> Option<Violation> {
    const HANDSHAKE: u8 = 22;
    const ALERT: u8 = 21;
    match first {
        [HANDSHAKE | ALERT] => None,
        [HANDSHAKE | ALERT, 3, ..] => Some(Violation::Tls),
        _ if HTTP1.iter().any(|begin| first.starts_with(begin)) => Some(Violation::Http1),
        _ if HTTP1.iter().any(|begin| begin.starts_with(first)) => None,
        _ => Some(Violation::BadPreface),
    }
}

/// The header block fragment in the payload of a HEADERS frame, and the stream that it depends on.
fn header_fragment(head: FrameHead, payload: &[u8]) -> Result<(&[u8], Option<StreamId>), Violation> {
    let mut rest = payload;
    let mut pad = 0;
    if head.has(flag::PADDED) {
        let (&length, tail) = rest.split_first().ok_or(Violation::FrameSize)?;
        (pad, rest) = (usize::from(length), tail);
    }
    let mut dependency = None;
    if head.has(flag::PRIORITY) {
        let (priority, tail) = rest.split_first_chunk::<5>().ok_or(Violation::FrameSize)?;
        (dependency, rest) = (Some(be_u32(priority) & STREAM_ID_MAX), tail);
    }
    let len = rest.len().checked_sub(pad).ok_or(Violation::Padding)?;
    Ok((&rest[..len], dependency))
}
