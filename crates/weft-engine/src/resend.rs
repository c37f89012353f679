//! Resending: a call that a server has not processed is sent again, once.
//!
//! A server reports this by a reset with REFUSED_STREAM, or by a GOAWAY whose last stream is below the call's (RFC 9113
//! section 8.7). It is also true if no byte of the call had left when its connection was lost. Neither the chain nor
//! its filters notice: it is the same try, with the same random numbers. The sent part of a request is kept for this
//! while it is short and no response has arrived.

use crate::call::{CallKey, Caller, Phase, SentRequest};
use crate::engine::Engine;
use weft_core::Time;
use weft_core::filter::Reliability;

/// The most bytes of a request that are kept; a longer request is reported to the client as refused.
const RESEND_BYTES_MAX: usize = 16 << 10;
/// The most buffers that are kept for later calls.
const SPARE_MAX: usize = 256;

/// Buffers for the requests of later calls.
#[derive(Default)]
pub(crate) struct Spare(Vec<Vec<u8>>);

impl SentRequest {
    /// Appends sent bytes to the buffer for resending. False if there are too many.
    pub(crate) fn push(&mut self, prefix: &[u8], data: &[u8], end: bool) -> bool {
        if self.body.len() + prefix.len() + data.len() > RESEND_BYTES_MAX {
            return false;
        }
        if !prefix.is_empty() {
            self.body.extend_from_slice(prefix);
        }
        self.body.extend_from_slice(data);
        self.is_ended |= end;
        true
    }
}

impl Spare {
    /// A buffer for a call whose headers are `at` this position of the output.
    pub(crate) fn begin(&mut self, at: u64) -> SentRequest {
        SentRequest { at, body: self.0.pop().unwrap_or_default(), is_ended: false }
    }

    /// Returns a buffer to the pool: the call will not be sent again.
    pub(crate) fn give_back(&mut self, sent: Option<SentRequest>) {
        let Some(mut sent) = sent else { return };
        if sent.body.capacity() > 0 && self.0.len() < SPARE_MAX {
            sent.body.clear();
            self.0.push(sent.body);
        }
    }
}

impl Engine {
    /// Whether no byte of a call has left, so that its server cannot have processed it.
    pub(crate) fn is_unsent(&self, key: CallKey) -> bool {
        let Some(call) = self.calls.get(key) else { return false };
        let (Some(sent), Some(up)) = (&call.sent, call.up) else { return false };
        self.conns.get(up.conn).is_some_and(|conn| conn.h2.n_sent() <= sent.at)
    }

    /// Resends a call that its server has not processed. False if that is not allowed, or the request is not kept any
    /// more.
    pub(crate) fn resend(&mut self, now: Time, key: CallKey) -> bool {
        if self.is_sent_once(key) {
            return false;
        }
        let Some(call) = self.calls.get_mut(key).filter(|call| !call.is_ending && !call.is_resent) else {
            return false;
        };
        let Some(sent) = call.sent.take() else { return false };
        if !sent.body.is_empty() || sent.is_ended {
            call.request.hold_first(now, sent.body, sent.is_ended);
        }
        call.is_resent = true;
        call.phase = Phase::AwaitUpstream;
        if !call.is_redirected {
            // Prefers another server.
            let refused = call.endpoint.take();
            call.choice.get_or_insert_default().tried.extend(refused);
        }
        self.stats.calls_resent += 1;
        self.arm_held(key, true);
        self.dispatch(now, key);
        true
    }

    /// Whether a filter in front of the call forbids resending (RELIABILITY AT MOST ONCE).
    fn is_sent_once(&self, key: CallKey) -> bool {
        let mut caller = self.calls.get(key).map(|call| call.caller);
        while let Some(Caller::Filter(outer)) = caller {
            let Some(call) = self.calls.get(outer) else { break };
            let once = call.filtered.as_ref().and_then(|wrap| wrap.filter.policies().once);
            if once == Some(Reliability::AtMostOnce) {
                return true;
            }
            caller = Some(call.caller);
        }
        false
    }
}
