//! The poll loop of one worker: wait, read a batch, run it, write a batch.
//!
//! Sockets are registered once, edge-triggered, for reading and writing, so a busy connection costs one `read` and one
//! `write` per batch and nothing else. A read that did not fill its buffer has emptied the socket (epoll(7)), unless
//! the peer's end has arrived, too.

use crate::clock;
use crate::descriptors::Descriptors;
use crate::names::Names;
use crate::race::Race;
use crate::socket::{ListenSocket, StreamSocket};
use crate::spin::Spin;
use crate::writer::RowSender;
use mio::event::Event;
use mio::{Events, Poll, Token, Waker};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};
use weft_core::{Interval, Time};
use weft_engine::plan::{Address, Listener, Plan};
use weft_engine::recording::{Limits, Recorder, RecordingProgress, SharedUsage};
use weft_engine::rules::Swap;
use weft_engine::stats::Stats;
use weft_engine::{Action, CloseReason, Config, ConnId, Engine};

/// Bytes of a worker's read buffer.
const READ_BYTES: usize = 64 << 10;
/// Full buffers that one connection may read before the others get their turn.
const READS_A_TURN: usize = 4;
/// Connections that a worker accepts before it serves the others.
const ACCEPTS_A_TURN: usize = 64;
/// Readiness events per wait.
const EVENTS: usize = 256;
/// If accepting fails for lack of descriptors, it is retried after this time.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Clients of aborted calls have this time to receive their answer.
const LAST_WORDS_TIME: Duration = Duration::from_millis(500);
/// Rows of sinks are sent after this time even if the batch is not full.
const ROWS_TIME_MAX: Interval = Interval::from_millis(20);

const WAKE: Token = Token(usize::MAX);
/// Tokens of listeners count down from here.
const LISTENERS: usize = usize::MAX - 1;

/// A function that each worker runs between two batches. Its argument is the worker's number; those for frames follow
/// those for calls.
pub type Task = Arc<dyn Fn(usize) + Send + Sync>;

/// Messages to a worker.
pub(crate) enum Mail {
    /// A connection that worker 0 accepted.
    Accepted { stream: StreamSocket, listener: Arc<str>, peer: String },
    /// Run this plan from now on; some listeners have other names in it (from, to). Answered with the time that the
    /// switch took.
    Apply { plan: Arc<Plan>, renamed: Arc<[(String, String)]>, done: Sender<Duration> },
    /// Use other copies of tables from now on; answered once the worker has released the old ones.
    ApplySwap { swap: Arc<Swap>, done: Sender<()> },
    /// Run this between two batches.
    Task { task: Task, done: Sender<()> },
    /// Accept on this socket (worker 0 only).
    Listen { name: Arc<str>, socket: ListenSocket },
    /// Stop accepting on the listener with this name.
    Unlisten { name: Arc<str> },
    /// Another worker has released something that calls of this one may wait for.
    Wake,
    /// The new addresses of endpoints' names.
    Names { names: Arc<Names> },
    /// Send a copy of the counters.
    Stats { to: Sender<WorkerStats> },
    /// Start recording the operations on the queue of a link of calls; all workers share the limits. Answered with
    /// false if it is being recorded already, with None if there is no such link.
    Record { link: Arc<str>, limits: Limits, taken: Arc<SharedUsage>, to: Sender<Option<bool>> },
    /// Report the progress of the recordings, by link.
    Recordings { to: Sender<Vec<(String, RecordingProgress)>> },
    /// End the recording of a link, and send it.
    TakeRecording { link: Arc<str>, to: Sender<Option<Recorder>> },
    /// Finish calls and end, at the latest after this time.
    Stop { within: Duration },
}

/// The counters of one worker.
pub(crate) struct WorkerStats {
    pub(crate) stats: Stats,
    pub(crate) retired: Retired,
    pub(crate) syscalls: u64,
    /// By endpoint, why the last attempt to connect failed.
    pub(crate) connect_errors: BTreeMap<String, String>,
}

/// Counters of elements of retired versions: see [`Engine::retired`].
pub(crate) type Retired = Vec<(String, Vec<(String, weft_core::abi::Counters)>)>;

/// The sending side of a worker's mailbox.
#[derive(Clone)]
pub(crate) struct Mailbox {
    pub(crate) sender: Sender<Mail>,
    pub(crate) waker: Arc<Waker>,
}

impl Mailbox {
    /// Returns false if the worker is gone.
    pub(crate) fn send(&self, mail: Mail) -> bool {
        self.sender.send(mail).is_ok() && self.waker.wake().is_ok()
    }
}

pub(crate) struct Worker {
    engine: Engine,
    poll: Poll,
    mail: Receiver<Mail>,
    /// All workers, this one included.
    peers: Vec<Mailbox>,
    /// The number of this one.
    index: usize,
    turn: Arc<AtomicUsize>,
    listeners: Vec<Option<(Arc<str>, ListenSocket)>>,
    accept_again: Option<Instant>,
    sockets: Vec<Option<Socket>>,
    /// Free slots of `sockets`, and those that become free at the end of this turn: an event of this turn may still
    /// name them.
    free: Vec<usize>,
    freed: Vec<usize>,
    /// Slots of connections with more to read.
    again: Vec<usize>,
    /// The slot of each engine connection; none while it is connecting.
    slots: rustc_hash::FxHashMap<ConnId, usize>,
    /// Connections that are connecting.
    races: BTreeMap<ConnId, Race>,
    /// The addresses of endpoints' names; the last one that worked comes first.
    names: BTreeMap<String, Vec<SocketAddr>>,
    /// By endpoint, why the last attempt to connect failed.
    connect_errors: BTreeMap<String, String>,
    buffer: Box<[u8]>,
    spin: Spin,
    descriptors: Descriptors,
    /// Number of calls at the start of the turn.
    n_calls: usize,
    rows: RowSender,
    rows_since: Option<Time>,
    syscalls: u64,
    /// Listeners that stay open for their drain delay before the worker stops, and until when; and the time that calls
    /// have after that.
    draining: Vec<(Instant, Arc<str>)>,
    stop_within: Option<Duration>,
    /// While stopping: when unfinished calls are aborted.
    stop_at: Option<Instant>,
    /// When the worker ends, after it has aborted calls.
    gone_at: Option<Instant>,
    n_cut: usize,
}

struct Socket {
    conn: ConnId,
    stream: StreamSocket,
    /// The destination of an outgoing connection.
    endpoint: Option<Address>,
    is_connecting: bool,
    /// The peer sends nothing after the bytes that can be read now.
    is_read_closed: bool,
    /// The engine has closed it; the worker closes it once its output is written and the peer has closed.
    is_closing: bool,
    is_output_ended: bool,
    /// It is in `again`.
    is_again: bool,
}

impl Worker {
    /// Creates a worker that runs `plan`; `peers` are the mailboxes of all workers.
    pub(crate) fn new(
        config: Config,
        plan: Arc<Plan>,
        (poll, mail): (Poll, Receiver<Mail>),
        peers: Vec<Mailbox>,
        rows: RowSender,
        spin: Spin,
        descriptors: Descriptors,
    ) -> Self {
        Self {
            spin,
            descriptors,
            n_calls: 0,
            index: config.worker,
            engine: Engine::new(clock::now(), config, plan),
            poll,
            mail,
            peers,
            turn: Arc::default(),
            listeners: Vec::new(),
            accept_again: None,
            sockets: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            again: Vec::new(),
            slots: rustc_hash::FxHashMap::default(),
            races: BTreeMap::new(),
            names: BTreeMap::new(),
            connect_errors: BTreeMap::new(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            rows,
            rows_since: None,
            syscalls: 0,
            draining: Vec::new(),
            stop_within: None,
            stop_at: None,
            gone_at: None,
            n_cut: 0,
        }
    }

    /// Runs until a request to stop; returns the number of aborted calls.
    pub(crate) fn run(mut self) -> io::Result<usize> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            match self.wait(&mut events) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            self.n_calls = self.engine.calls_open();
            let now = clock::now();
            for index in core::mem::take(&mut self.again) {
                if let Some(Some(socket)) = self.sockets.get_mut(index) {
                    socket.is_again = false;
                    self.read_socket(now, index);
                }
            }
            for event in &events {
                match event.token() {
                    WAKE => {}
                    Token(token) if token > LISTENERS - self.listeners.len() && token <= LISTENERS => {
                        self.accept(LISTENERS - token);
                    }
                    Token(index) => self.handle_socket_event(now, index, event),
                }
            }
            self.retry_accept();
            self.run_races(now);
            if !self.read_mail(now) {
                return Ok(self.n_cut);
            }
            self.drain_listeners(now);
            self.stop_on_time(now);
            if self.engine.poll_timeout().is_some_and(|at| at <= now) {
                self.engine.handle_timeout(now);
            }
            self.act_and_write(now);
            self.send_rows(now);
            self.free.append(&mut self.freed);
            if self.has_stopped() {
                return Ok(self.n_cut);
            }
        }
    }

    /// Waits for events, a timeout or mail: busy-polls first, if that has paid off recently, then sleeps.
    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let began = clock::now();
        let window = self.spin.window(self.n_calls.max(self.engine.calls_open()));
        if window > Interval::ZERO {
            let longest = self.wait_max().map_or(window, |longest| Interval(longest.as_nanos() as i64));
            while clock::now() < began + window.min(longest) {
                self.poll(events, Some(Duration::ZERO))?;
                if !events.is_empty() {
                    return Ok(());
                }
                std::thread::yield_now();
            }
        }
        let longest = self.wait_max();
        self.poll(events, longest)?;
        if longest != Some(Duration::ZERO) {
            self.spin.record_sleep(clock::now() - began);
        }
        Ok(())
    }

    fn poll(&mut self, events: &mut Events, longest: Option<Duration>) -> io::Result<()> {
        self.syscalls += 1;
        self.poll.poll(events, longest)
    }

    /// Returns how long the worker may sleep: until the next timer, retry or deadline. None if there is none.
    fn wait_max(&self) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = clock::now();
        let rows_at = self.rows_since.map(|since| since + ROWS_TIME_MAX);
        let race_at = self.races.values().filter_map(Race::poll_timeout).min();
        let next = [self.engine.poll_timeout(), rows_at, race_at].into_iter().flatten().min();
        let wait = next.map(|at| Duration::from_nanos((at - now).0.max(0) as u64));
        let retry = self.accept_again.map(|at| at.saturating_duration_since(Instant::now()));
        let drained = self.draining.iter().map(|(until, _)| *until).min();
        let stop = drained.or(self.stop_at).or(self.gone_at);
        let stop = stop.map(|at| at.saturating_duration_since(Instant::now()));
        [wait, retry, stop].into_iter().flatten().min()
    }

    // ---- sockets ----

    /// Handles an event of a socket: the result of connecting, then writes and reads.
    fn handle_socket_event(&mut self, now: Time, index: usize, event: &Event) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        if socket.is_connecting {
            match socket.stream.is_connected() {
                Ok(false) => return,
                Ok(true) => self.win_race(now, index),
                Err(error) => return self.lose_attempt(now, index, &error),
            }
        }
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        // An end that arrives together with data has no event of its own: the next read finds it.
        socket.is_read_closed |= event.is_read_closed();
        if event.is_writable() {
            self.write_socket(now, index);
        }
        if event.is_readable() || event.is_read_closed() {
            self.read_socket(now, index);
        }
    }

    /// Reads from a connection, a limited number of times per turn, and gives the bytes to the engine.
    fn read_socket(&mut self, now: Time, index: usize) {
        for _ in 0..READS_A_TURN {
            let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
            self.syscalls += 1;
            let n = match socket.stream.read(&mut self.buffer) {
                Ok(0) => return self.close_lost(now, index, CloseReason::Eof),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return self.close_lost(now, index, CloseReason::Reset),
            };
            // Bytes that arrive at a closing connection are read and dropped, so that its last bytes get out.
            if !socket.is_closing {
                self.engine.handle_input(now, socket.conn, &self.buffer[..n]);
            }
            if n < self.buffer.len() && !self.is_read_closed(index) {
                return;
            }
        }
        if let Some(Some(socket)) = self.sockets.get_mut(index)
            && !core::mem::replace(&mut socket.is_again, true)
        {
            self.again.push(index);
        }
    }

    fn is_read_closed(&self, index: usize) -> bool {
        matches!(self.sockets.get(index), Some(Some(socket)) if socket.is_read_closed)
    }

    /// Writes a connection's output until the socket or the output is exhausted.
    fn write_socket(&mut self, now: Time, index: usize) {
        loop {
            let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
            let output = self.engine.output(socket.conn);
            if output.is_empty() {
                if socket.is_closing {
                    self.shut_down_output(now, index);
                }
                return;
            }
            if socket.is_connecting {
                return;
            }
            self.syscalls += 1;
            match socket.stream.write(output) {
                Ok(n) => self.engine.advance_output(socket.conn, n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.close_lost(now, index, CloseReason::Reset),
            }
        }
    }

    /// The peer or the network has ended a connection.
    fn close_lost(&mut self, now: Time, index: usize, reason: CloseReason) {
        let Some(socket) = self.remove_socket(index) else { return };
        self.engine.handle_closed(now, socket.conn, reason);
    }

    /// Shuts down writing on a connection that the engine has closed. It is closed once the peer has closed, too:
    /// with unread bytes the system would reset the connection, and the peer would lose our last ones.
    fn shut_down_output(&mut self, now: Time, index: usize) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        if !core::mem::replace(&mut socket.is_output_ended, true) {
            self.syscalls += 1;
            if socket.stream.end_output().is_err() {
                self.close_lost(now, index, CloseReason::Eof);
            }
        }
    }

    /// Removes the socket of a connection or an attempt, and frees its index.
    fn remove_socket(&mut self, index: usize) -> Option<Socket> {
        let mut socket = self.sockets.get_mut(index)?.take()?;
        // Closing the descriptor would deregister it, too; this keeps mio's records consistent.
        let _ = socket.stream.deregister(self.poll.registry());
        if !socket.is_connecting {
            self.slots.remove(&socket.conn);
        }
        self.freed.push(index);
        Some(socket)
    }

    /// Registers the socket of a connection; an outgoing one leads to `endpoint` and is connecting.
    fn insert(
        &mut self,
        conn: ConnId,
        mut stream: StreamSocket,
        endpoint: Option<Address>,
    ) -> io::Result<usize> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(None);
            self.sockets.len() - 1
        });
        if let Err(error) = stream.register(self.poll.registry(), Token(index)) {
            self.free.push(index);
            return Err(error);
        }
        let is_connecting = endpoint.is_some();
        if !is_connecting {
            self.slots.insert(conn, index);
        }
        self.sockets[index] = Some(Socket {
            conn,
            stream,
            endpoint,
            is_connecting,
            is_read_closed: false,
            is_closing: false,
            is_output_ended: false,
            is_again: false,
        });
        Ok(index)
    }

    /// Carries out the engine's actions and writes its output, until there is nothing more.
    fn act_and_write(&mut self, now: Time) {
        loop {
            if let Some(action) = self.engine.poll_action() {
                self.run_action(now, action);
            } else if let Some(conn) = self.engine.poll_output() {
                if let Some(index) = self.slots.get(&conn).copied() {
                    self.write_socket(now, index);
                }
            } else {
                return;
            }
        }
    }

    /// Carries out an action of the engine: connects, closes, wakes other workers or aborts.
    fn run_action(&mut self, now: Time, action: Action) {
        match action {
            Action::Connect { conn, address } => {
                let addresses = self.addresses_of(&address);
                self.races.insert(conn, Race::new(&address, now, addresses));
                self.engine.handle_connecting(clock::now(), conn);
                self.run_race(now, conn);
            }
            Action::Close { conn } => {
                self.end_race(conn);
                let Some(index) = self.slots.get(&conn).copied() else {
                    return self.engine.handle_released(now, conn);
                };
                if let Some(Some(socket)) = self.sockets.get_mut(index) {
                    socket.is_closing = true;
                }
                self.write_socket(now, index);
            }
            Action::Wake => {
                let others = self.peers.iter().enumerate().filter(|(index, _)| *index != self.index);
                for (_, peer) in others {
                    // A worker that is gone has no calls.
                    let _ = peer.send(Mail::Wake);
                }
            }
            Action::Abort { conn } => {
                if let Some(endpoint) = self.end_race(conn) {
                    self.connect_errors.insert(endpoint, "no answer in the connect timeout".to_owned());
                }
                if let Some(index) = self.slots.get(&conn).copied() {
                    self.remove_socket(index);
                }
            }
        }
    }

    // ---- connecting ----

    /// Returns the addresses of an endpoint, in the order of attempts.
    fn addresses_of(&self, endpoint: &Address) -> Vec<Address> {
        match endpoint {
            Address::Name(name) => {
                self.names.get(name).into_iter().flatten().map(|address| Address::Tcp(*address)).collect()
            }
            Address::Tcp(_) | Address::Unix(_) => vec![endpoint.clone()],
        }
    }

    /// Starts the connection attempts that are due.
    fn run_races(&mut self, now: Time) {
        let is_due = |race: &Race| race.poll_timeout().is_some_and(|at| at <= now);
        let due: Vec<ConnId> =
            self.races.iter().filter(|(_, race)| is_due(race)).map(|(conn, _)| *conn).collect();
        due.into_iter().for_each(|conn| self.run_race(now, conn));
    }

    /// Starts the attempts of a connection that are due. When all have failed, reports this to the engine.
    fn run_race(&mut self, now: Time, conn: ConnId) {
        while let Some(race) = self.races.get_mut(&conn) {
            if race.is_lost() {
                self.races.remove(&conn);
                return self.engine.handle_closed(now, conn, CloseReason::Refused);
            }
            let endpoint = race.endpoint().clone();
            let Some(address) = race.next_address(now) else { return };
            self.syscalls += 1;
            let connected = StreamSocket::connect(&address).inspect_err(|error| self.count_refused(error));
            let admitted = connected.and_then(|stream| match self.descriptors.admit(stream.descriptor()) {
                true => Ok(stream),
                false => Err(io::Error::other("the last descriptors are not for calls")),
            });
            match admitted.and_then(|stream| self.insert(conn, stream, Some(endpoint.clone()))) {
                Ok(index) => {
                    if let Some(race) = self.races.get_mut(&conn) {
                        race.record_begun(now, index);
                    }
                }
                Err(error) => self.note_connect_error(&endpoint, &error),
            }
        }
    }

    /// Handles a failed connection attempt: tries the next address.
    fn lose_attempt(&mut self, now: Time, index: usize, error: &io::Error) {
        let Some(socket) = self.remove_socket(index) else { return };
        if let Some(endpoint) = &socket.endpoint {
            self.note_connect_error(endpoint, error);
        }
        if let Some(race) = self.races.get_mut(&socket.conn) {
            race.record_failed(now, index);
        }
        self.run_race(now, socket.conn);
    }

    /// Handles a successful connection attempt: drops the others, and moves its address to the front.
    fn win_race(&mut self, now: Time, index: usize) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        socket.is_connecting = false;
        let (conn, peer) = (socket.conn, socket.stream.peer());
        let race = self.races.remove(&conn).expect("a connection that is connecting is in a race");
        let endpoint = race.endpoint().to_string();
        race.into_attempts()
            .into_iter()
            .filter(|slot| *slot != index)
            .for_each(|slot| drop(self.remove_socket(slot)));
        self.slots.insert(conn, index);
        self.connect_errors.remove(&endpoint);
        if let (Some(peer), Some(addresses)) = (peer, self.names.get_mut(&endpoint))
            && let Some(at) = addresses.iter().position(|address| *address == peer)
        {
            addresses[..=at].rotate_right(1);
        }
        self.engine.handle_connected(now, conn);
    }

    /// Drops all attempts of a connection; returns the name of its endpoint.
    fn end_race(&mut self, conn: ConnId) -> Option<String> {
        let race = self.races.remove(&conn)?;
        let endpoint = race.endpoint().to_string();
        race.into_attempts().into_iter().for_each(|slot| drop(self.remove_socket(slot)));
        Some(endpoint)
    }

    fn note_connect_error(&mut self, endpoint: &Address, error: &io::Error) {
        self.connect_errors.insert(endpoint.to_string(), error.to_string());
    }

    /// Applies new addresses of names: connections to removed addresses take no further calls.
    fn apply_names(&mut self, now: Time, names: &Names) {
        self.names = names.iter().map(|(name, found)| (name.clone(), found.addresses.clone())).collect();
        let mut moved = Vec::new();
        for socket in self.sockets.iter().flatten().filter(|socket| !socket.is_connecting) {
            let Some(Address::Name(name)) = &socket.endpoint else { continue };
            let Some(addresses) = self.names.get(name) else { continue };
            if socket.stream.peer().is_some_and(|peer| !addresses.contains(&peer)) {
                moved.push(socket.conn);
            }
        }
        moved.into_iter().for_each(|conn| self.engine.handle_moved(now, conn));
    }

    /// Removes connect errors of endpoints that no cluster has any more.
    fn forget_connect_errors(&mut self) {
        let clusters = &self.engine.plan().clusters;
        let known: BTreeSet<String> =
            clusters.iter().flat_map(|cluster| &cluster.endpoints).map(ToString::to_string).collect();
        self.connect_errors.retain(|endpoint, _| known.contains(endpoint));
    }

    // ---- accepting ----

    /// Accepts connections of a listener, a limited number per turn, and distributes them to the workers round-robin.
    fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPTS_A_TURN {
            let Some(Some((name, socket))) = self.listeners.get(at) else { return };
            self.syscalls += 1;
            match socket.accept() {
                // It closes, so that its client notices, and may connect elsewhere.
                Ok((stream, _)) if !self.descriptors.admit(stream.descriptor()) => {}
                Ok((stream, peer)) => {
                    let mail = Mail::Accepted { stream, listener: Arc::clone(name), peer };
                    let turn = self.turn.fetch_add(1, Relaxed) % self.peers.len();
                    // If the worker is gone, the connection closes here.
                    let _ = self.peers[turn].send(mail);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // Most likely there is no descriptor left: the connection waits in the backlog.
                Err(error) => {
                    self.count_refused(&error);
                    return self.accept_again = Some(Instant::now() + ACCEPT_RETRY);
                }
            }
        }
        self.accept_again = Some(Instant::now());
    }

    /// Counts errors caused by a lack of descriptors, of the process or of the system.
    fn count_refused(&self, error: &io::Error) {
        if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
            self.descriptors.count_refused();
        }
    }

    /// Accepts connections again, if the time after a lack of descriptors is over.
    fn retry_accept(&mut self) {
        if self.accept_again.is_some_and(|at| at <= Instant::now()) {
            self.accept_again = None;
            (0..self.listeners.len()).for_each(|at| self.accept(at));
        }
    }

    // ---- mail ----

    /// Handles all mail. Returns false if all senders are gone.
    fn read_mail(&mut self, now: Time) -> bool {
        loop {
            match self.mail.try_recv() {
                Ok(mail) => self.handle_mail(now, mail),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Handles one message from the node or from another worker.
    fn handle_mail(&mut self, now: Time, mail: Mail) {
        match mail {
            Mail::Accepted { stream, listener, peer } => {
                let Some(conn) = self.engine.handle_accept(now, &listener, &peer) else { return };
                if self.insert(conn, stream, None).is_err() {
                    self.engine.handle_closed(now, conn, CloseReason::Reset);
                }
            }
            Mail::Apply { plan, renamed, done } => {
                let begun = Instant::now();
                self.rename_listeners(&renamed);
                self.engine.apply(now, plan);
                self.forget_connect_errors();
                let _ = done.send(begun.elapsed());
            }
            Mail::ApplySwap { swap, done } => {
                self.engine.apply_swap(&swap);
                // The answer means that this worker has released it.
                drop(swap);
                let _ = done.send(());
            }
            Mail::Task { task, done } => {
                task(self.index);
                drop(task);
                let _ = done.send(());
            }
            Mail::Listen { name, mut socket } => {
                let at = self.listeners.len();
                if socket.register(self.poll.registry(), Token(LISTENERS - at)).is_ok() {
                    self.listeners.push(Some((name, socket)));
                    self.accept(at);
                }
            }
            Mail::Unlisten { name } => {
                for entry in &mut self.listeners {
                    if let Some((_, mut socket)) = entry.take_if(|(n, _)| *n == name) {
                        let _ = socket.deregister(self.poll.registry());
                    }
                }
            }
            Mail::Wake => self.engine.handle_wake(now),
            Mail::Names { names } => self.apply_names(now, &names),
            Mail::Stats { to } => {
                let _ = to.send(WorkerStats {
                    stats: self.engine.stats(),
                    retired: self.engine.retired().to_vec(),
                    syscalls: self.syscalls,
                    connect_errors: self.connect_errors.clone(),
                });
            }
            Mail::Record { link, limits, taken, to } => {
                let _ = to.send(self.engine.record_call_queue(now, &link, limits, &taken));
            }
            Mail::Recordings { to } => {
                let _ = to.send(self.engine.call_queue_recordings(now));
            }
            Mail::TakeRecording { link, to } => {
                let _ = to.send(self.engine.take_call_queue_recording(&link));
            }
            Mail::Stop { within } => {
                let (begun, plan) = (Instant::now(), self.engine.plan());
                let until = |listener: &Listener| {
                    let delay = listener.options.drain_delay.unwrap_or(Interval::ZERO);
                    (begun + Duration::from_nanos(delay.0.max(0) as u64), listener.name.as_str().into())
                };
                self.draining = plan.listeners.iter().map(until).collect();
                self.stop_within = Some(within);
                self.drain_listeners(now);
            }
        }
    }

    /// Closes listeners whose delay is over while stopping; after the last, starts the time limit of the calls.
    fn drain_listeners(&mut self, now: Time) {
        let Some(within) = self.stop_within else { return };
        let at = Instant::now();
        for (_, name) in self.draining.extract_if(.., |(until, _)| *until <= at) {
            for entry in &mut self.listeners {
                drop(entry.take_if(|(listener, _)| *listener == name));
            }
            self.engine.drain_listener(now, &name);
        }
        if self.draining.is_empty() {
            self.stop_within = None;
            self.listeners.clear();
            self.engine.close_gracefully(now);
            self.stop_at = Some(at + within);
        }
    }

    /// Renames listeners (from, to), here and in the engine.
    fn rename_listeners(&mut self, renamed: &[(String, String)]) {
        self.engine.rename_listeners(renamed);
        for (name, _) in self.listeners.iter_mut().flatten() {
            if let Some((_, to)) = renamed.iter().find(|(from, _)| **from == **name) {
                *name = to.as_str().into();
            }
        }
    }

    /// Aborts the calls that have not finished in time, and answers their clients.
    fn stop_on_time(&mut self, now: Time) {
        if let Some(at) = self.stop_at
            && Instant::now() >= at
        {
            self.n_cut += self.engine.cut(now);
            self.stop_at = None;
            self.gone_at = Some(Instant::now() + LAST_WORDS_TIME);
        }
    }

    fn is_stopping(&self) -> bool {
        self.stop_at.is_some() || self.gone_at.is_some()
    }

    /// Whether the worker is stopping, and has finished its calls, connections and rows, or has run out of time.
    fn has_stopped(&self) -> bool {
        let is_idle = self.engine.clients_open() == 0 && self.engine.calls_open() == 0;
        let is_late = self.gone_at.is_some_and(|at| Instant::now() >= at);
        self.is_stopping() && (is_late || (is_idle && self.rows_since.is_none()))
    }

    // ---- rows ----

    /// Sends the sink rows to the writer, if they are due or the worker is stopping. Counts them as lost if the
    /// writer is behind.
    fn send_rows(&mut self, now: Time) {
        let n = self.engine.rows().len();
        if n == 0 {
            return;
        }
        let since = *self.rows_since.get_or_insert(now);
        if !self.engine.rows().is_due() && now - since < ROWS_TIME_MAX && !self.is_stopping() {
            return;
        }
        self.rows_since = None;
        if !self.rows.send(self.engine.rows()) {
            self.engine.note_rows_lost(n);
            self.engine.rows().clear();
        }
    }
}
