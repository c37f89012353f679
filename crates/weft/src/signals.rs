//! Signals: the first request to stop is clean, the second is immediate; SIGHUP may reload the program. Also forwards
//! signals to a child command.

use crate::fault::Fault;
use core::future::poll_fn;
use core::task::Poll;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs;
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use tokio::signal::unix::{self, SignalKind};
use weft_io::privileges::{self, KeptCapabilities};

/// A request to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Stop,
    /// Reload the program.
    Reload,
}

/// Receives one message on SIGINT, SIGTERM or SIGHUP, the latter for example when the terminal closes. A second signal
/// ends the process at once. A second SIGHUP does not count: a closed terminal causes several.
pub(crate) fn stop_requests() -> Result<Receiver<()>, Fault> {
    requests((), None)
}

/// As [`stop_requests`], for a node. Without a controlling terminal, as under a service manager, each SIGHUP requests a
/// reload instead.
pub(crate) fn node_requests() -> Result<Receiver<Request>, Fault> {
    // Check now: a terminal that closes detaches its processes before they get the signal.
    requests(Request::Stop, (!has_terminal()).then_some(Request::Reload))
}

/// Starts a thread that turns signals into requests: to stop, or for SIGHUP to reload if there is such a
/// request. A second request to stop ends the process.
fn requests<R: Copy + Send + 'static>(stop: R, reload: Option<R>) -> Result<Receiver<R>, Fault> {
    let (send, receive) = channel();
    let mut n = 0;
    // A script's background processes ignore SIGINT, but SIGINT is to end this one.
    let hang_up = (!is_ignored(Signal::HUP)).then_some(Signal::HUP);
    let asks = [Signal::INT, Signal::TERM].into_iter().chain(hang_up);
    // This thread may start before the node gives up its privileges. If this call fails, the node reports it.
    let give_up = || drop(privileges::reduce(KeptCapabilities::Nothing));
    let tell = move |signal| {
        if let Some(reload) = reload.filter(|_| signal == Signal::HUP) {
            return send.send(reload).is_ok() || n > 0;
        }
        if n > 0 && signal == Signal::HUP {
            return true;
        }
        if n > 0 || send.send(stop).is_err() {
            std::process::exit(130);
        }
        n += 1;
        true
    };
    each_signal(asks, give_up, tell)?;
    Ok(receive)
}

/// Receives the signals to forward to a child command. SIGINT and SIGQUIT are left out if this process is in the
/// foreground of its terminal: the terminal sends them to the child, too.
pub(crate) fn forwarded_signals() -> Result<Receiver<Signal>, Fault> {
    let (send, receive) = channel();
    let asks = [Signal::INT, Signal::QUIT, Signal::HUP, Signal::TERM];
    each_signal(
        asks.into_iter().filter(|signal| !is_ignored(*signal)),
        || {},
        move |signal| {
            let is_of_key = matches!(signal, Signal::INT | Signal::QUIT);
            (is_of_key && is_in_foreground()) || send.send(signal).is_ok()
        },
    )?;
    Ok(receive)
}

/// Sends a signal to a child of this process that has not been waited for.
pub(crate) fn forward(child: &Child, signal: Signal) {
    // It cannot fail: the child is ours, even if it has ended.
    let _ = kill_process(Pid::from_child(child), signal);
}

/// Sends a signal to the process group that the child leads.
pub(crate) fn forward_to_group(child: &Child, signal: Signal) {
    let _ = kill_process_group(Pid::from_child(child), signal);
}

/// Calls `tell` for each of these signals, on a new thread that first calls `first`, until `tell` returns false.
fn each_signal(
    signals: impl Iterator<Item = Signal>,
    first: impl FnOnce() + Send + 'static,
    mut tell: impl FnMut(Signal) -> bool + Send + 'static,
) -> Result<(), Fault> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(Fault::environment)?;
    // Register the handlers now, not when the thread runs: from here on no signal ends the process.
    let within = runtime.enter();
    let heard = signals
        .map(|signal| unix::signal(SignalKind::from_raw(signal.as_raw())).map(|stream| (signal, stream)));
    let mut heard = heard.collect::<Result<Vec<_>, _>>().map_err(Fault::environment)?;
    drop(within);
    let wait = async move {
        let mut next = async || {
            poll_fn(|cx| {
                let came = heard
                    .iter_mut()
                    .find_map(|(signal, stream)| stream.poll_recv(cx).is_ready().then_some(*signal));
                came.map_or(Poll::Pending, Poll::Ready)
            })
            .await
        };
        while tell(next().await) {}
    };
    let thread = std::thread::Builder::new().name("weft-signals".to_owned());
    let run = move || {
        first();
        runtime.block_on(wait);
    };
    thread.spawn(run).map_err(Fault::environment)?;
    Ok(())
}

/// Whether this process was started with the signal ignored, as by `nohup`. It then stays ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // proc(5): a mask in hexadecimal, whose lowest bit is signal 1.
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// Whether the process is in the foreground group of its terminal, which gets the signals of keys.
fn is_in_foreground() -> bool {
    // proc(5): the fifth and the eighth field of stat.
    let words = stat();
    words.len() > 5 && words[2] == words[5]
}

/// Whether the process has a controlling terminal.
fn has_terminal() -> bool {
    // proc(5): the seventh field of stat, the terminal's device; 0 for none.
    stat().get(4).is_some_and(|terminal| terminal != "0")
}

/// The fields of the process's stat after its name: the first is field three.
fn stat() -> Vec<String> {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    behind.split(' ').map(str::to_owned).collect()
}
