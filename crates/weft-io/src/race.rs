//! Connects to an endpoint with several addresses: starts an attempt for each, after a delay or as soon as the one
//! before has failed, and keeps the first that succeeds (RFC 8305 section 5, "happy eyeballs").

use std::collections::VecDeque;
use std::net::SocketAddr;
use weft_core::{Interval, Time};
use weft_engine::plan::Address;

/// The Connection Attempt Delay between two attempts, as RFC 8305 section 8 recommends.
pub(crate) const ATTEMPT_DELAY: Interval = Interval::from_millis(250);

/// The attempts of one connection. The slot of its socket identifies an attempt.
#[derive(Debug)]
pub(crate) struct Race {
    endpoint: Address,
    untried: VecDeque<Address>,
    attempts: Vec<usize>,
    next_at: Time,
}

impl Race {
    /// A race over the addresses of an endpoint, in the order of attempts.
    pub(crate) fn new(endpoint: &Address, now: Time, addresses: impl IntoIterator<Item = Address>) -> Self {
        let endpoint = endpoint.clone();
        Self { endpoint, untried: addresses.into_iter().collect(), attempts: Vec::new(), next_at: now }
    }

    /// The endpoint, as the engine names it.
    pub(crate) fn endpoint(&self) -> &Address {
        &self.endpoint
    }

    /// The next address to try, if one is due: the caller confirms the attempt with [`Race::record_begun`].
    pub(crate) fn next_address(&mut self, now: Time) -> Option<Address> {
        let is_due = self.attempts.is_empty() || self.next_at <= now;
        if is_due { self.untried.pop_front() } else { None }
    }

    pub(crate) fn record_begun(&mut self, now: Time, slot: usize) {
        self.attempts.push(slot);
        self.next_at = now + ATTEMPT_DELAY;
    }

    /// An attempt has failed: the next is due at once.
    pub(crate) fn record_failed(&mut self, now: Time, slot: usize) {
        self.attempts.retain(|attempt| *attempt != slot);
        self.next_at = now;
    }

    /// When the next attempt is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        (!self.untried.is_empty()).then_some(self.next_at)
    }

    /// Whether all addresses have failed.
    pub(crate) fn is_lost(&self) -> bool {
        self.untried.is_empty() && self.attempts.is_empty()
    }

    /// The sockets of the attempts under way.
    pub(crate) fn into_attempts(self) -> Vec<usize> {
        self.attempts
    }
}

/// Alternates between the two address families, so that a broken one costs one delay (RFC 8305 section 4).
pub(crate) fn interleave(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let (own, other): (Vec<_>, Vec<_>) = addresses.iter().partition(|a| a.is_ipv4() == first.is_ipv4());
    let mut other = other.into_iter();
    let mut mixed = Vec::with_capacity(addresses.len());
    for address in own {
        mixed.push(address);
        mixed.extend(other.next());
    }
    mixed.extend(other);
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(n: u8) -> Vec<Address> {
        (1..=n).map(|host| Address::Tcp(SocketAddr::from(([10, 0, 0, host], 80)))).collect()
    }

    /// An unresponsive first address would cost the whole connect timeout, and a healthy one would never be tried.
    #[test]
    fn silent_address_delays_next_250_ms() {
        let all = addresses(3);
        let mut race = Race::new(&all[0], Time(0), all.clone());
        assert_eq!(race.next_address(Time(0)), Some(all[0].clone()));
        race.record_begun(Time(0), 7);
        assert_eq!(race.next_address(Time(1)), None);
        let later = Time(0) + ATTEMPT_DELAY;
        assert_eq!(race.poll_timeout(), Some(later));
        assert_eq!(race.next_address(later), Some(all[1].clone()));
        race.record_begun(later, 8);
        assert_eq!(race.next_address(later), None);
        assert_eq!(race.into_attempts(), [7, 8]);
    }

    /// A refusal is an answer: waiting after it would only be slow.
    #[test]
    fn refused_address_tries_next_at_once() {
        let all = addresses(2);
        let mut race = Race::new(&all[0], Time(0), all.clone());
        assert_eq!(race.next_address(Time(0)), Some(all[0].clone()));
        race.record_begun(Time(0), 7);
        race.record_failed(Time(5), 7);
        assert!(!race.is_lost());
        assert_eq!(race.next_address(Time(5)), Some(all[1].clone()));
        race.record_begun(Time(5), 8);
        race.record_failed(Time(9), 8);
        assert!(race.is_lost() && race.poll_timeout().is_none());
        assert!(Race::new(&all[0], Time(0), []).is_lost(), "a name without an address");
    }

    #[test]
    fn families_alternate_from_first() {
        let of = |text: &str| text.parse::<SocketAddr>().expect("the text is an address");
        let given = ["[::1]:1", "[::2]:1", "[::3]:1", "10.0.0.1:1"].map(of);
        assert_eq!(interleave(&given), ["[::1]:1", "10.0.0.1:1", "[::2]:1", "[::3]:1"].map(of));
        assert_eq!(interleave(&given[3..]), [of("10.0.0.1:1")]);
        assert_eq!(interleave(&[]), []);
    }
}
