//! The front end: a closed loop of `Add` calls by a seeded mix of users. Every call is counted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::task::LocalSet;
use tonic::transport::{Channel, Endpoint, Error};
use tonic::{Code, Response, Status};

use crate::pb::cart_client::CartClient;
use crate::pb::{CartReply, CartRequest, Item};

/// Maximum number of calls in flight.
pub const IN_FLIGHT_MAX: usize = 65_536;
/// Maximum number of connections.
pub const CONNECTIONS_MAX: usize = 1_024;
/// The percentage of calls by mallory, who may only read.
pub const MALLORY_PERCENT: u64 = 5;
/// The user who may only read.
const MALLORY: &str = "mallory";
/// Maximum recorded latency in microseconds; longer ones count as this.
pub const LATENCY_US_MAX: u64 = 600_000_000;
/// Object ids are below this.
pub const OBJECT_IDS: u64 = 1_000_000;

/// The target, the load and the duration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `http://HOST:PORT` or `unix:PATH`.
    pub target: String,
    /// Calls in flight over all connections; 1 to [`IN_FLIGHT_MAX`].
    pub n_in_flight: usize,
    /// Connections; 1 to [`CONNECTIONS_MAX`].
    pub n_connections: usize,
    /// How long to send; then the run waits for the calls in flight.
    pub duration: Duration,
    /// Maximum calls per second over all connections. A late call is sent at once; no burst makes up for lost time.
    pub rate_per_s: Option<f64>,
    /// Determines users and object ids, so that a run can be repeated.
    pub seed: u64,
}

impl Settings {
    /// Validates the settings.
    pub fn checked(self) -> Result<Self, String> {
        if !(1..=IN_FLIGHT_MAX).contains(&self.n_in_flight) {
            return Err(format!("calls in flight must be 1 to {IN_FLIGHT_MAX}"));
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.n_connections) {
            return Err(format!("connections must be 1 to {CONNECTIONS_MAX}"));
        }
        if self.rate_per_s.is_some_and(|rate| !(rate.is_finite() && rate >= 0.001)) {
            return Err("the rate must be at least 0.001 calls a second".to_owned());
        }
        Ok(self)
    }
}

/// The results of the calls of a second, or of a run.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Calls sent.
    pub sent: u64,
    /// Calls that ended, with any status.
    pub answered: u64,
    /// Answers that were compared with their requests: all of them.
    pub checked: u64,
    /// Wrong answers: a reply to another request, or a denial of a user who may buy.
    pub wrong: u64,
    /// Ends by gRPC status name.
    pub by_status: BTreeMap<String, u64>,
    latency_us: Histogram<u64>,
}

impl Tally {
    /// The given quantile (0 to 1) of the answered calls' latencies, in microseconds.
    pub fn latency_us(&self, quantile: f64) -> u64 {
        self.latency_us.value_at_quantile(quantile)
    }

    fn new() -> Self {
        let latency_us =
            Histogram::new_with_max(LATENCY_US_MAX, 3).expect("three digits are within its range");
        Self { sent: 0, answered: 0, checked: 0, wrong: 0, by_status: BTreeMap::new(), latency_us }
    }

    fn answer(&mut self, code: Code, is_right: bool, latency: Duration) {
        self.answered += 1;
        self.checked += 1;
        self.wrong += u64::from(!is_right);
        let name = status_name(code);
        match self.by_status.get_mut(name) {
            Some(n) => *n += 1,
            None => drop(self.by_status.insert(name.to_owned(), 1)),
        }
        self.latency_us.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    fn absorb(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.checked += other.checked;
        self.wrong += other.wrong;
        for (name, n) in &other.by_status {
            *self.by_status.entry(name.clone()).or_default() += n;
        }
        self.latency_us.add(&other.latency_us).expect("both have one range");
    }

    fn to_json(&self) -> Value {
        json!({
            "sent": self.sent,
            "answered": self.answered,
            "checked": self.checked,
            "wrong": self.wrong,
            "ok": self.by_status.get("OK").copied().unwrap_or(0),
            "by_status": self.by_status,
            "p50_us": self.latency_us(0.5),
            "p99_us": self.latency_us(0.99),
        })
    }
}

/// Calls the target until the time is up or `stop` resolves, then waits for the calls in flight.
///
/// `report` gets `{"t", "sent", "answered", "checked", "wrong", "ok", "by_status", "p50_us", "p99_us"}` each second,
/// for that second alone. At the end it gets the same for the whole run, with `"final": true` and `"seconds"`. Fails if
/// a connection cannot be made at the start; a call that fails later counts as answered, with its status.
pub async fn run(
    settings: &Settings,
    stop: impl Future<Output = ()>,
    mut report: impl FnMut(&Value),
) -> Result<Tally, Error> {
    let channels = connect(settings).await?;
    let shared = Rc::new(Shared::new(settings));
    let callers = LocalSet::new();
    for index in 0..settings.n_in_flight {
        let client = CartClient::new(channels[index % channels.len()].clone());
        callers.spawn_local(Rc::clone(&shared).call_in_turn(client, index as u64));
    }
    let mut total = Tally::new();
    let mut second = |total: &mut Tally| {
        let tally = shared.tally.replace(Tally::new());
        total.absorb(&tally);
        let mut line = tally.to_json();
        line["t"] = json!(shared.start.elapsed().as_secs_f64().round());
        report(&line);
    };
    let mut ticks = tokio::time::interval_at((shared.start + SECOND).into(), SECOND);
    tokio::pin!(callers, stop);
    loop {
        tokio::select! {
            () = &mut callers => break,
            _ = ticks.tick() => second(&mut total),
            () = &mut stop, if !shared.stopped.get() => shared.stopped.set(true),
        }
    }
    total.absorb(&shared.tally.borrow());
    let mut line = total.to_json();
    line["final"] = json!(true);
    line["seconds"] = json!(shared.start.elapsed().as_secs_f64());
    report(&line);
    Ok(total)
}

const SECOND: Duration = Duration::from_secs(1);

/// The state shared by the callers, which run on one thread.
struct Shared {
    start: Instant,
    end: Instant,
    seed: u64,
    gap: Option<Duration>,
    next_send: RefCell<Instant>,
    stopped: std::cell::Cell<bool>,
    tally: RefCell<Tally>,
}

impl Shared {
    fn new(settings: &Settings) -> Self {
        let start = Instant::now();
        Self {
            start,
            end: start + settings.duration,
            seed: settings.seed,
            gap: settings.rate_per_s.map(|rate| Duration::from_secs_f64(1.0 / rate)),
            next_send: RefCell::new(start),
            stopped: std::cell::Cell::new(false),
            tally: RefCell::new(Tally::new()),
        }
    }

    /// A caller: a call, its answer, the next call.
    async fn call_in_turn(self: Rc<Self>, mut client: CartClient<Channel>, index: u64) {
        let mut rng = Rng(self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ index);
        while self.may_send().await {
            let request = request(&mut rng);
            self.tally.borrow_mut().sent += 1;
            let expected = ExpectedReply::of(&request);
            let sent = Instant::now();
            let answer = client.add(request).await.map(Response::into_inner);
            let latency = sent.elapsed();
            let code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
            self.tally.borrow_mut().answer(code, expected.is_answered_by(&answer), latency);
        }
    }

    /// Waits for this caller's turn, if there is a rate. Returns false once the run is over.
    async fn may_send(&self) -> bool {
        if let Some(gap) = self.gap {
            let turn = (*self.next_send.borrow()).max(Instant::now());
            *self.next_send.borrow_mut() = turn + gap;
            tokio::time::sleep_until(turn.min(self.end).into()).await;
        }
        !self.stopped.get() && Instant::now() < self.end
    }
}

/// The expected answer to a request.
struct ExpectedReply {
    object_id: i64,
    quantity: i32,
    may_buy: bool,
}

impl ExpectedReply {
    fn of(request: &CartRequest) -> Self {
        let CartRequest { object_id, quantity, user, .. } = request;
        Self { object_id: *object_id, quantity: *quantity, may_buy: user != MALLORY }
    }

    /// Whether an answer belongs to this request. Errors other than a denial can happen to any user: they are counted
    /// by their status.
    fn is_answered_by(&self, answer: &Result<CartReply, Status>) -> bool {
        match answer {
            Ok(reply) => (reply.object_id, reply.quantity) == (self.object_id, self.quantity),
            Err(status) => status.code() != Code::PermissionDenied || !self.may_buy,
        }
    }
}

async fn connect(settings: &Settings) -> Result<Vec<Channel>, Error> {
    let endpoint = Endpoint::from_shared(settings.target.clone())?.tcp_nodelay(true);
    let mut channels = Vec::with_capacity(settings.n_connections);
    for _ in 0..settings.n_connections {
        channels.push(endpoint.connect().await?);
    }
    Ok(channels)
}

fn request(rng: &mut Rng) -> CartRequest {
    let user = match rng.below(100) {
        n if n < MALLORY_PERCENT => MALLORY,
        n if n % 2 == 0 => "alice",
        _ => "bob",
    };
    CartRequest {
        user: user.to_owned(),
        object_id: rng.below(OBJECT_IDS) as i64,
        quantity: 1 + rng.below(9) as i32,
        item: Some(Item { sku: "tea-250g".to_owned(), note: String::new() }),
        ..CartRequest::default()
    }
}

/// SplitMix64; each caller has its own seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// The name of a status in the gRPC specification.
fn status_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_decides_user_mix() {
        // If this failed, a run could not be repeated, or the share of denied calls would not be 5 %.
        let draw = |seed| (0..10_000_u64).map(|i| request(&mut Rng(seed ^ (i << 8)))).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        let mallory = draw(7).iter().filter(|request| request.user == "mallory").count();
        assert!((400..600).contains(&mallory), "{mallory} of 10,000");
    }

    #[test]
    fn mismatched_reply_is_wrong() {
        // If this failed, a network that mixes up two calls would pass.
        let expected = ExpectedReply { object_id: 7, quantity: 3, may_buy: true };
        let reply = |object_id, quantity| Ok(CartReply { server: "cart-1".to_owned(), object_id, quantity });
        assert!(expected.is_answered_by(&reply(7, 3)));
        assert!(!expected.is_answered_by(&reply(8, 3)));
        assert!(!expected.is_answered_by(&reply(7, 4)));
        assert!(expected.is_answered_by(&Err(Status::unavailable(""))));
        assert!(!expected.is_answered_by(&Err(Status::permission_denied(""))));
        assert!(
            ExpectedReply { may_buy: false, ..expected }.is_answered_by(&Err(Status::permission_denied("")))
        );
    }

    #[test]
    fn out_of_range_setting_is_refused() {
        // If this failed, a typing error could request a million connections, or no calls.
        let settings = Settings {
            target: String::new(),
            n_in_flight: 1,
            n_connections: 1,
            duration: SECOND,
            rate_per_s: None,
            seed: 0,
        };
        assert!(settings.clone().checked().is_ok());
        assert!(Settings { n_in_flight: 0, ..settings.clone() }.checked().is_err());
        assert!(Settings { n_connections: CONNECTIONS_MAX + 1, ..settings.clone() }.checked().is_err());
        assert!(Settings { rate_per_s: Some(f64::NAN), ..settings }.checked().is_err());
    }
}
