//! The simulated world of calls: an engine, its peers, the network between them, and a clock that jumps from event to
//! event.

use crate::client::{Answer, Call, Client};
use crate::network::{Network, Pipe};
use crate::peer::Session;
use crate::server::{Behaviour, Reaction, Received, Server, ServerConn};
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::hash::{self, HashKey};
use weft_core::rng::Rng;
use weft_core::{Interval, Time};
use weft_engine::plan::{Address, Plan};
use weft_engine::{Action, CloseReason, Config, ConnId, Engine};
use weft_proto::session::http2;

/// The start time of worlds. Not 0, so that a forgotten timestamp shows.
pub const START: Time = Time(1_700_000_000_000_000_000);
/// A world with open calls at this time hangs.
pub const TIME_MAX: Interval = Interval::from_secs(600);
/// Maximum number of events of a run; more indicate an endless loop.
pub const EVENTS_MAX: u64 = 20_000_000;

/// A client of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(usize);

/// A call of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(ClientId, usize);

/// A peer that sends arbitrary bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RawId(usize);

/// One engine with its peers.
pub struct World {
    now: Time,
    rng: Rng,
    network: Network,
    engine: Engine,
    events: BTreeMap<(Time, u64), Event>,
    n_planned: u64,
    n_done: u64,
    links: Vec<Link>,
    by_conn: BTreeMap<ConnId, usize>,
    clients: Vec<Client>,
    raws: Vec<Raw>,
    servers: Vec<Server>,
    served: Vec<ServerConn>,
    received: Vec<Received>,
    faults: Vec<String>,
    log: u64,
    bytes_held_max: usize,
    peer_config: http2::Config,
}

/// A stream between the engine and a peer.
struct Link {
    conn: ConnId,
    peer: Peer,
    to_engine: Pipe,
    to_peer: Pipe,
    is_open: bool,
    /// The engine has closed it.
    is_closing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Client(usize),
    ServerConn(usize),
    Raw(usize),
}

/// The bytes that a raw peer received.
#[derive(Clone, Debug, Default)]
pub struct Raw {
    /// The received bytes, in order.
    pub received: Vec<u8>,
    /// The engine closed the connection.
    pub is_closed: bool,
    waiting: Vec<u8>,
    link: Option<usize>,
    is_reading: bool,
}

enum Event {
    Arrive { link: usize, to_engine: bool },
    Connected { conn: ConnId, server: Option<usize> },
    Begin { client: usize, call: usize },
    Message { client: usize, call: usize, message: usize },
    Leave { client: usize, call: usize },
    Read { client: usize, call: usize },
    React { served: usize, reaction: Reaction },
    Bytes { raw: usize, bytes: Vec<u8> },
    Do(Box<dyn FnOnce(&mut World)>),
}

impl World {
    /// A world whose engine runs `plan`, with the default limits.
    pub fn new(seed: u64, plan: Plan) -> Self {
        Self::with_config(seed, Config::default(), plan)
    }

    /// A world with other limits. `seed` replaces the seed in `config`.
    pub fn with_config(seed: u64, config: Config, plan: Plan) -> Self {
        let config = Config { seed, hash: HashKey::from_seed(seed), ..config };
        Self {
            now: START,
            rng: Rng::from_seed(seed),
            network: Network::default(),
            engine: Engine::new(START, config, Arc::new(plan)),
            events: BTreeMap::new(),
            n_planned: 0,
            n_done: 0,
            links: Vec::new(),
            by_conn: BTreeMap::new(),
            clients: Vec::new(),
            raws: Vec::new(),
            servers: Vec::new(),
            served: Vec::new(),
            received: Vec::new(),
            faults: Vec::new(),
            log: seed,
            bytes_held_max: 0,
            peer_config: http2::Config { max_concurrent_streams: 100_000, ..http2::Config::client() },
        }
    }

    /// Sets the network.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Adds a server. `handler` decides how it responds to each request.
    ///
    /// # Panics
    /// If the address is invalid.
    #[must_use]
    pub fn server(mut self, address: &str, handler: impl FnMut(&Received) -> Behaviour + 'static) -> Self {
        let parsed: Address = address.parse().expect("the address of a server");
        self.servers.push(Server {
            address: parsed.to_string(),
            handler: Box::new(handler),
            is_down: false,
            is_unreachable: false,
            streams_max: 1000,
        });
        self
    }

    /// Limits the concurrent streams of this server's later connections.
    pub fn limit_streams(&mut self, address: &str, streams_max: u32) {
        self.server_mut(address).streams_max = streams_max;
    }

    /// Adds a client, which connects to a listener immediately.
    pub fn client(&mut self, listener: &str) -> ClientId {
        let index = self.clients.len();
        self.clients.push(Client::new());
        self.connect_client(index, listener);
        ClientId(index)
    }

    /// Adds a call of a client, at the time in `call`.
    pub fn call(&mut self, client: ClientId, call: Call) -> CallId {
        let at = START + call.at;
        let nth = self.clients[client.0].add(call);
        self.schedule(at, Event::Begin { client: client.0, call: nth });
        CallId(client, nth)
    }

    /// Adds a raw peer, which connects to a listener immediately. It sends only the bytes of [`Self::send_raw`].
    pub fn raw(&mut self, listener: &str) -> RawId {
        let index = self.raws.len();
        self.raws.push(Raw { is_reading: true, ..Raw::default() });
        match self.engine.handle_accept(self.now, listener, "10.9.9.9:9") {
            Some(conn) => self.raws[index].link = Some(self.link(conn, Peer::Raw(index))),
            None => self.raws[index].is_closed = true,
        }
        RawId(index)
    }

    /// Sends bytes from a raw peer, at a time from the start of the world.
    pub fn send_raw(&mut self, raw: RawId, at: Interval, bytes: Vec<u8>) {
        self.schedule(START + at, Event::Bytes { raw: raw.0, bytes });
    }

    /// Stops a raw peer's reading.
    pub fn stop_reading(&mut self, raw: RawId) {
        self.raws[raw.0].is_reading = false;
    }

    /// The state of a raw peer.
    pub fn seen_by(&self, raw: RawId) -> &Raw {
        &self.raws[raw.0]
    }

    /// Calls a function at a time from the start of the world.
    pub fn at(&mut self, at: Interval, what: impl FnOnce(&mut Self) + 'static) {
        self.schedule(START + at, Event::Do(Box::new(what)));
    }

    /// Stops a server: resets its connections and refuses new ones.
    pub fn kill(&mut self, address: &str) {
        self.server_mut(address).is_down = true;
        for link in self.links_of(address) {
            self.reset(link);
        }
    }

    /// Drops further connection attempts to a server without a response.
    pub fn make_unreachable(&mut self, address: &str) {
        self.server_mut(address).is_unreachable = true;
    }

    /// Restarts a server.
    pub fn revive(&mut self, address: &str) {
        let server = self.server_mut(address);
        (server.is_down, server.is_unreachable) = (false, false);
    }

    /// Sends GOAWAY on a server's connections: it accepts no new streams.
    pub fn go_away(&mut self, address: &str) {
        for link in self.links_of(address) {
            if let Peer::ServerConn(served) = self.links[link].peer {
                self.served[served].session.h2.go_away(self.now, http2::ErrorCode::NoError);
                self.flush_peer(link);
            }
        }
    }

    /// Sends a server's last GOAWAY without an earlier warning, as a server does that is about to stop.
    pub fn go_away_at_once(&mut self, address: &str) {
        for link in self.links_of(address) {
            if let Peer::ServerConn(served) = self.links[link].peer {
                self.served[served].session.h2.go_away(self.now, http2::ErrorCode::InternalError);
                self.flush_peer(link);
            }
        }
    }

    /// Resets a client's connection.
    pub fn cut(&mut self, client: ClientId) {
        if let Some(link) = self.clients[client.0].link {
            self.reset(link);
        }
    }

    /// Applies a new plan.
    pub fn apply(&mut self, plan: Plan) {
        self.log(&[1, plan.version]);
        self.engine.apply(self.now, Arc::new(plan));
        self.serve_engine();
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Interval {
        self.now - START
    }

    /// The response to a call.
    pub fn answer(&self, call: CallId) -> &Answer {
        &self.clients[call.0.0].calls[call.1].answer
    }

    /// All calls with their responses, in the order of clients and calls.
    pub fn answers(&self) -> impl Iterator<Item = (&Call, &Answer)> {
        self.clients.iter().flat_map(|c| c.calls.iter().map(|c| (&c.spec, &c.answer)))
    }

    /// The requests that reached servers, in order.
    pub fn received(&self) -> &[Received] {
        &self.received
    }

    /// A hash of all events and their times. Equal seeds and programs give equal hashes.
    pub fn log_hash(&self) -> u64 {
        self.log
    }

    /// The maximum of [`Engine::bytes_held`] over time.
    pub fn bytes_held_max(&self) -> usize {
        self.bytes_held_max
    }

    /// Runs until a time from the start.
    pub fn run_until(&mut self, at: Interval) {
        let end = START + at;
        self.serve_engine();
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            self.step(next);
        }
        self.now = self.now.max(end);
    }

    /// Runs until all calls have ended and the network is idle, and some seconds longer. Then checks the world.
    ///
    /// # Panics
    /// If [`World::check`] finds faults, or calls are open after [`TIME_MAX`].
    pub fn run(&mut self) {
        self.serve_engine();
        while !self.is_quiet() && self.now < START + TIME_MAX {
            let Some(next) = self.next_time() else { break };
            self.step(next);
        }
        // Resets and closes from the last call still have to arrive.
        let end = self.elapsed().0 + Interval::from_secs(12).0;
        self.run_until(Interval(end));
        let faults = self.check();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    /// The faults of an idle world.
    ///
    /// Every call has exactly one response; no peer saw a violation of HTTP/2 or gRPC; no call of the engine and no
    /// stream of a peer is left over.
    pub fn check(&mut self) -> Vec<String> {
        let mut faults = self.faults.clone();
        for (client, state) in self.clients.iter().enumerate() {
            for (nth, call) in state.calls.iter().enumerate() {
                if call.answer.end.is_none() {
                    faults.push(format!("client {client}, call {nth} ({}): not answered", call.spec.path));
                }
                if call.answer.is_answered_twice {
                    faults.push(format!("client {client}, call {nth} ({}): answered twice", call.spec.path));
                }
            }
            let streams = state.session.as_ref().map_or(0, |s| s.h2.active_streams());
            if streams > 0 {
                faults.push(format!("client {client}: {streams} streams are still open"));
            }
        }
        for (nth, served) in self.served.iter().enumerate() {
            let is_open = self.links.iter().any(|l| l.is_open && l.peer == Peer::ServerConn(nth));
            let streams = served.session.h2.active_streams();
            if is_open && streams > 0 {
                let address = &self.servers[served.server].address;
                faults.push(format!("server {address}: {streams} streams are still open"));
            }
        }
        if self.engine.calls_open() > 0 {
            faults.push(format!("the engine still has {} calls", self.engine.calls_open()));
        }
        let endpoints = self.engine.stats().endpoints;
        for endpoint in endpoints.iter().filter(|e| e.active > 0) {
            faults.push(format!("{} still counts {} calls", endpoint.address, endpoint.active));
        }
        if self.engine.bytes_held() > 0 {
            faults.push(format!("the engine still holds {} bytes", self.engine.bytes_held()));
        }
        faults
    }

    // ---- time ----

    fn schedule(&mut self, at: Time, event: Event) {
        self.n_planned += 1;
        self.events.insert((at.max(self.now), self.n_planned), event);
    }

    /// The time of the next event: of a peer's timer, a planned event, or the engine's timer. None if there is none.
    fn next_time(&self) -> Option<Time> {
        let of_peers = self.links.iter().filter(|l| l.is_open).filter_map(|l| match l.peer {
            Peer::Client(at) => self.clients[at].session.as_ref()?.h2.poll_timeout(),
            Peer::ServerConn(at) => self.served[at].session.h2.poll_timeout(),
            Peer::Raw(_) => None,
        });
        let planned = self.events.first_key_value().map(|((at, _), _)| *at);
        let next = of_peers.chain(planned).chain(self.engine.poll_timeout()).min();
        next.map(|at| at.max(self.now))
    }

    /// Processes all events of the next time.
    fn step(&mut self, at: Time) {
        self.now = at;
        self.n_done += 1;
        assert!(self.n_done < EVENTS_MAX, "too many events: the world loops");
        if let Some(event) = self.events.first_entry().filter(|e| e.key().0 <= at) {
            let event = event.remove();
            self.handle(event);
        } else {
            self.peer_timeouts();
            if self.engine.poll_timeout().is_some_and(|due| due <= at) {
                self.engine.handle_timeout(at);
            }
        }
        self.serve_engine();
        self.bytes_held_max = self.bytes_held_max.max(self.engine.bytes_held());
    }

    /// Handles the due timers of all open HTTP/2 peers. A violation by the engine is recorded as a fault.
    fn peer_timeouts(&mut self) {
        for link in 0..self.links.len() {
            if !self.links[link].is_open {
                continue;
            }
            let session = match self.links[link].peer {
                Peer::Client(at) => self.clients[at].session.as_mut(),
                Peer::ServerConn(at) => Some(&mut self.served[at].session),
                Peer::Raw(_) => None,
            };
            let Some(session) = session else { continue };
            if session.h2.poll_timeout().is_some_and(|at| at <= self.now)
                && let Err(error) = session.h2.handle_timeout(self.now)
            {
                self.faults.push(format!("the engine is at fault: {}", error.violation.name()));
            }
            self.flush_peer(link);
        }
    }

    fn is_quiet(&self) -> bool {
        let has_ended = self.clients.iter().all(|c| c.calls.iter().all(|c| c.answer.end.is_some()));
        has_ended && self.events.is_empty() && self.engine.calls_open() == 0
    }

    /// Adds an event to the log hash.
    fn log(&mut self, words: &[u64]) {
        self.log = hash::mix(self.log, self.now.0 as u64);
        for word in words {
            self.log = hash::mix(self.log, *word);
        }
    }

    /// Processes one planned event.
    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive { link, to_engine } => self.arrive(link, to_engine),
            Event::Connected { conn, server } => self.connected(conn, server),
            Event::Begin { client, call } => self.begin(client, call),
            Event::Message { client, call, message } => {
                self.clients[client].send(call, message);
                self.flush_client(client);
            }
            Event::Leave { client, call } => {
                self.clients[client].cancel(self.now, call);
                self.flush_client(client);
            }
            Event::Read { client, call } => {
                self.clients[client].read(call);
                self.flush_client(client);
            }
            Event::React { served, reaction } => self.react(served, reaction),
            Event::Bytes { raw, bytes } => {
                self.raws[raw].waiting.extend_from_slice(&bytes);
                if let Some(link) = self.raws[raw].link {
                    self.flush_peer(link);
                }
            }
            Event::Do(what) => what(self),
        }
    }

    // ---- peers ----

    /// Connects a client to a listener of the engine, unless the engine refuses the connection.
    fn connect_client(&mut self, index: usize, listener: &str) {
        let peer = format!("10.0.1.{}:{}", index % 250 + 1, 40_000 + index);
        let Some(conn) = self.engine.handle_accept(self.now, listener, &peer) else { return };
        let link = self.link(conn, Peer::Client(index));
        self.clients[index].session = Some(Session::new(self.peer_config.clone(), self.now));
        self.clients[index].link = Some(link);
        self.flush_peer(link);
    }

    /// Starts a client's call, and plans its messages, its cancellation and its reading.
    fn begin(&mut self, client: usize, call: usize) {
        self.log(&[2, client as u64, call as u64]);
        let began = self.clients[client].begin(self.now, call);
        let spec = &self.clients[client].calls[call].spec;
        let (n, gap, leaves, reads) = (spec.messages.len(), spec.gap, spec.leaves_after, spec.reads_after);
        if began {
            for message in 0..n {
                let at = self.now + Interval(gap.0 * message as i64);
                self.schedule(at, Event::Message { client, call, message });
            }
            if let Some(after) = leaves {
                self.schedule(self.now + after, Event::Leave { client, call });
            }
            if let Some(after) = reads {
                self.schedule(self.now + after, Event::Read { client, call });
            }
        }
        self.flush_client(client);
    }

    /// Carries out a server's reaction if its connection is still open: sends, or resets the connection.
    fn react(&mut self, served: usize, reaction: Reaction) {
        let Some(link) = self.links.iter().position(|l| l.is_open && l.peer == Peer::ServerConn(served))
        else {
            return;
        };
        if self.served[served].act(reaction) {
            self.reset(link);
        } else {
            self.flush_peer(link);
        }
    }

    fn server_mut(&mut self, address: &str) -> &mut Server {
        self.servers.iter_mut().find(|s| s.address == address).expect("a server has this address")
    }

    /// The open streams to the server at this address, by index.
    fn links_of(&self, address: &str) -> Vec<usize> {
        let is_its = |link: &Link| match link.peer {
            Peer::ServerConn(at) => self.servers[self.served[at].server].address == address,
            _ => false,
        };
        (0..self.links.len()).filter(|at| self.links[*at].is_open && is_its(&self.links[*at])).collect()
    }

    // ---- streams ----

    fn link(&mut self, conn: ConnId, peer: Peer) -> usize {
        let (to_engine, to_peer) = (Pipe::default(), Pipe::default());
        self.links.push(Link { conn, peer, to_engine, to_peer, is_open: true, is_closing: false });
        self.by_conn.insert(conn, self.links.len() - 1);
        self.links.len() - 1
    }

    fn flush_client(&mut self, client: usize) {
        if let Some(link) = self.clients[client].link {
            self.flush_peer(link);
        }
    }

    /// Moves a peer's output to the network.
    fn flush_peer(&mut self, at: usize) {
        let capacity = self.network.capacity_bytes;
        let link = &mut self.links[at];
        if !link.is_open {
            return;
        }
        let h2 = match link.peer {
            Peer::Client(client) => self.clients[client].session.as_mut().map(|s| &mut s.h2),
            Peer::ServerConn(served) => Some(&mut self.served[served].session.h2),
            Peer::Raw(raw) => {
                let waiting = &mut self.raws[raw].waiting;
                let n = link.to_engine.write(waiting, capacity);
                waiting.drain(..n);
                None
            }
        };
        if let Some(h2) = h2 {
            let n = link.to_engine.write(h2.output(), capacity);
            h2.advance_output(n);
        }
        self.schedule_arrival(at, true);
    }

    /// Moves the engine's output for a peer to the network. Closes the stream if that is pending and all output is
    /// sent.
    fn flush_engine(&mut self, at: usize) {
        let link = &mut self.links[at];
        if !link.is_open {
            return;
        }
        let n = link.to_peer.write(self.engine.output(link.conn), self.network.capacity_bytes);
        self.engine.advance_output(link.conn, n);
        if link.is_closing && self.engine.output(link.conn).is_empty() && !link.to_peer.is_ended {
            link.to_peer.is_ended = true;
        }
        self.schedule_arrival(at, false);
    }

    /// Schedules the next arrival of a direction, if there is data or an end to deliver.
    fn schedule_arrival(&mut self, at: usize, to_engine: bool) {
        let link = &mut self.links[at];
        let pipe = if to_engine { &mut link.to_engine } else { &mut link.to_peer };
        if pipe.is_moving || (pipe.is_empty() && !pipe.is_ended) {
            return;
        }
        pipe.is_moving = true;
        let due = self.now + self.network.latency(&mut self.rng);
        self.schedule(due, Event::Arrive { link: at, to_engine });
    }

    /// Delivers the next chunk of a direction.
    fn arrive(&mut self, at: usize, to_engine: bool) {
        if !self.links[at].is_open {
            return;
        }
        if self.rng.chance(self.network.reset_per_mille) {
            self.log(&[3, at as u64]);
            return self.reset(at);
        }
        let max = self.rng.within(&self.network.chunk_bytes).max(1) as usize;
        let link = &mut self.links[at];
        let peer = link.peer;
        if let (Peer::Raw(raw), false) = (peer, to_engine)
            && !self.raws[raw].is_reading
        {
            link.to_peer.is_moving = false;
            return;
        }
        let pipe = if to_engine { &mut link.to_engine } else { &mut link.to_peer };
        let bytes = pipe.read(max);
        pipe.is_moving = !pipe.is_empty();
        let (is_moving, is_over) = (pipe.is_moving, pipe.is_ended && pipe.is_empty());
        self.log(&[4, at as u64, u64::from(to_engine), hash::hash_bytes(&bytes)]);
        if is_moving {
            let due = self.now + self.network.time_of(bytes.len());
            self.schedule(due, Event::Arrive { link: at, to_engine });
        }
        if to_engine {
            if !self.links[at].is_closing {
                self.engine.handle_input(self.now, self.links[at].conn, &bytes);
            }
            self.flush_peer(at);
        } else {
            self.deliver_to_peer(at, peer, &bytes);
            if is_over {
                // The peer closes the stream too.
                let conn = self.links[at].conn;
                self.remove_link(at);
                self.engine.handle_released(self.now, conn);
            } else {
                self.flush_engine(at);
            }
        }
    }

    /// Gives received bytes to a client, a server's connection or a raw peer, and plans a server's reactions.
    fn deliver_to_peer(&mut self, at: usize, peer: Peer, bytes: &[u8]) {
        let violation = match peer {
            Peer::Client(client) => {
                self.clients[client].take(self.now, bytes);
                self.clients[client].session.as_ref().and_then(|s| s.violation)
            }
            Peer::ServerConn(index) => {
                let served = &mut self.served[index];
                let server = &mut self.servers[served.server];
                let reactions = served.take(self.now, bytes, server, &mut self.received);
                let violation = served.session.violation;
                for (after, reaction) in reactions {
                    self.schedule(self.now + after, Event::React { served: index, reaction });
                }
                violation
            }
            Peer::Raw(raw) => {
                self.raws[raw].received.extend_from_slice(bytes);
                None
            }
        };
        if let Some(violation) = violation {
            self.faults.push(format!("the engine is at fault on {peer:?}: {violation}"));
        }
        self.flush_peer(at);
    }

    /// Resets a stream: both ends see it at once, and data in transit is lost.
    fn reset(&mut self, at: usize) {
        if !self.links[at].is_open {
            return;
        }
        let conn = self.links[at].conn;
        self.remove_link(at);
        self.engine.handle_closed(self.now, conn, CloseReason::Reset);
    }

    /// Removes a stream from its peer.
    fn remove_link(&mut self, at: usize) {
        let link = &mut self.links[at];
        link.is_open = false;
        self.by_conn.remove(&link.conn);
        match link.peer {
            Peer::Client(client) => self.clients[client].disconnect(self.now),
            Peer::ServerConn(served) => {
                for (_, stream) in core::mem::take(&mut self.served[served].streams) {
                    self.received[stream.received].is_cancelled = true;
                }
            }
            Peer::Raw(raw) => self.raws[raw].is_closed = true,
        }
    }

    // ---- the engine ----

    /// Acts as the engine's driver: processes actions and output until there are none.
    fn serve_engine(&mut self) {
        loop {
            if let Some(action) = self.engine.poll_action() {
                self.act(action);
            } else if let Some(conn) = self.engine.poll_output() {
                if let Some(at) = self.by_conn.get(&conn).copied() {
                    self.flush_engine(at);
                }
            } else {
                return;
            }
        }
    }

    /// Carries out an action of the engine: connects, closes or aborts a connection.
    fn act(&mut self, action: Action) {
        match action {
            Action::Connect { conn, address } => {
                let address = address.to_string();
                let server = self.servers.iter().position(|s| s.address == address);
                self.log(&[5, conn.0]);
                self.engine.handle_connecting(self.now, conn);
                if server.is_some_and(|s| self.servers[s].is_unreachable) {
                    return;
                }
                let due = self.now + self.network.latency(&mut self.rng);
                self.schedule(due, Event::Connected { conn, server });
            }
            Action::Close { conn } => {
                self.log(&[6, conn.0]);
                match self.by_conn.get(&conn).copied() {
                    Some(at) => {
                        self.links[at].is_closing = true;
                        self.flush_engine(at);
                    }
                    // A connection that is not established has no output.
                    None => self.engine.handle_released(self.now, conn),
                }
            }
            // There is one worker.
            Action::Wake => {}
            Action::Abort { conn } => {
                self.log(&[7, conn.0]);
                if let Some(at) = self.by_conn.get(&conn).copied() {
                    self.remove_link(at);
                }
            }
        }
    }

    /// Completes a connection of the engine: refused, or established with a new session of the server.
    fn connected(&mut self, conn: ConnId, server: Option<usize>) {
        let is_refused = self.rng.chance(self.network.refuse_per_mille);
        let server = server.filter(|s| !self.servers[*s].is_down && !is_refused);
        let Some(server) = server else {
            return self.engine.handle_closed(self.now, conn, CloseReason::Refused);
        };
        let config = http2::Config {
            max_concurrent_streams: self.servers[server].streams_max,
            ..http2::Config::server()
        };
        let session = Session::new(config, self.now);
        self.served.push(ServerConn { server, session, streams: BTreeMap::new(), is_dying: false });
        let link = self.link(conn, Peer::ServerConn(self.served.len() - 1));
        self.engine.handle_connected(self.now, conn);
        self.flush_peer(link);
    }
}
