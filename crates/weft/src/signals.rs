//! Being asked to stop: the first time cleanly, the second time at once; or to read the program again. And what is
//! asked of a command that runs within this one.

use crate::fault::Fault;
use core::future::poll_fn;
use core::task::Poll;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs;
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use tokio::signal::unix::{self, SignalKind};
use weft_io::privileges::{self, KeptCapabilities};

/// What a process is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Stop,
    /// Read the program again.
    Reload,
}

/// Receives one message when the process is asked to stop: by SIGINT or SIGTERM, or by SIGHUP, as when its terminal is
/// closed. A second request ends it at once; that the terminal is gone is told more than once, and is no second one.
pub(crate) fn stop_requests() -> Result<Receiver<Request>, Fault> {
    requests(false)
}

/// The same of a node. Where no terminal controls it, as under a service manager, SIGHUP asks it to read its program
/// again, as often as it comes.
pub(crate) fn node_requests() -> Result<Receiver<Request>, Fault> {
    // Now, because a terminal that is closed takes its processes off itself before they hear of it.
    requests(!has_terminal())
}

fn requests(reloads: bool) -> Result<Receiver<Request>, Fault> {
    let (send, receive) = channel();
    let mut n = 0;
    // What a script has started in the background has SIGINT ignored, and yet is to be ended by it.
    let hang_up = (!is_ignored(Signal::HUP)).then_some(Signal::HUP);
    let asks = [Signal::INT, Signal::TERM].into_iter().chain(hang_up);
    // The thread may be older than the moment at which a node gives up its own. Where that fails, the node says so.
    let give_up = || drop(privileges::reduce(KeptCapabilities::Nothing));
    let tell = move |signal| {
        if reloads && signal == Signal::HUP {
            return send.send(Request::Reload).is_ok() || n > 0;
        }
        if n > 0 && signal == Signal::HUP {
            return true;
        }
        if n > 0 || send.send(Request::Stop).is_err() {
            std::process::exit(130);
        }
        n += 1;
        true
    };
    each_signal(asks, give_up, tell)?;
    Ok(receive)
}

/// Receives the signals that are to be passed on to a command that runs within this one. Those of the keys of a
/// terminal, SIGINT and SIGQUIT, are left out where it has us in its foreground: it sends them to the command, too.
pub(crate) fn to_pass_on() -> Result<Receiver<Signal>, Fault> {
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

/// Sends a signal to a child of this process that was not waited for.
pub(crate) fn pass(child: &Child, signal: Signal) {
    // It cannot fail: the child is ours, even if it has ended.
    let _ = kill_process(Pid::from_child(child), signal);
}

/// The same with all that the child has started, whose group it leads.
pub(crate) fn pass_to_group(child: &Child, signal: Signal) {
    let _ = kill_process_group(Pid::from_child(child), signal);
}

/// Tells of each of these signals, on a thread of its own that begins with `first`, until `tell` says that nobody
/// listens.
fn each_signal(
    signals: impl Iterator<Item = Signal>,
    first: impl FnOnce() + Send + 'static,
    mut tell: impl FnMut(Signal) -> bool + Send + 'static,
) -> Result<(), Fault> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(Fault::environment)?;
    // From here on, and not only once the thread runs, none of them ends the process.
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

/// Whether whoever started the process has it ignore a signal, as `nohup` does: then it goes on ignoring it.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // proc(5): a mask in hexadecimal, whose lowest bit is signal 1.
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// Whether the process is in the group that its terminal sends the signals of its keys to.
fn is_in_foreground() -> bool {
    // proc(5): the fifth and the eighth field of stat.
    let words = stat();
    words.len() > 5 && words[2] == words[5]
}

/// Whether the process has a terminal that controls it.
fn has_terminal() -> bool {
    // proc(5): the seventh field of stat, the terminal's device; 0 for none.
    stat().get(4).is_some_and(|terminal| terminal != "0")
}

/// The fields of the process's stat behind its name: the first is the third.
fn stat() -> Vec<String> {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    behind.split(' ').map(str::to_owned).collect()
}
