//! Starts `weft run` for a test, with a shop behind it.

use shop::pb::cart_server::{Cart, CartServer};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

/// A folder that is removed with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weft-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("the test's folder can be made");
        fs::copy(shop_proto(), path.join("cart.proto")).expect("the shop's proto is there");
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("the test's folder takes files");
        path
    }

    /// Writes a file that only its owner may read, such as a key.
    pub(crate) fn write_private(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn shop_proto() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/shop/proto/cart.proto")
}

/// A command of the binary under test, with its own runtime folder for tokens.
pub(crate) fn weft(folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.env("XDG_RUNTIME_DIR", &folder.0).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) fn output(command: &mut Command) -> Output {
    command.output().expect("the binary can be started")
}

/// A running node. Dropping this value ends it.
pub(crate) struct Node {
    child: Child,
    /// The address of the first listener.
    pub(crate) listener: String,
    pub(crate) admin: String,
    /// The node's messages after the first line, once it has ended.
    talk: Option<JoinHandle<String>>,
}

impl Node {
    /// Starts `weft run` and waits for its first line.
    pub(crate) fn start(folder: &Folder, program: &Path, args: &[&str]) -> Self {
        Self::start_as(weft(folder), program, args)
    }

    /// As [`Node::start`], with a command whose last arguments run the binary. The command decides where standard
    /// output goes.
    pub(crate) fn start_as(mut command: Command, program: &Path, args: &[&str]) -> Self {
        command.arg("run").arg(program).args(["--admin", "127.0.0.1:0", "--table", "never"]).args(args);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary can be started");
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("the node says what it runs");
        let word_after = |mark: &str| {
            let rest = line.split_once(mark).map(|(_, rest)| rest).unwrap_or_default();
            rest.split([',', ' ', '\n', '"']).next().unwrap_or_default().to_owned()
        };
        let (listener, admin) = (word_after(" on "), word_after("admin http://"));
        assert!(!listener.is_empty() && !admin.is_empty(), "the node said: {line}");
        let talk = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Self { child, listener, admin, talk: Some(talk) }
    }

    /// A file of the process in `/proc`.
    pub(crate) fn proc_file(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).unwrap_or_default()
    }

    /// The file `status` of each thread.
    pub(crate) fn thread_statuses(&self) -> Vec<String> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("the node runs");
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok()).collect()
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = self.proc_file("status");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or("0 kB");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
    }

    /// Stops the node and waits for its end; returns its exit status.
    pub(crate) fn stop(self) -> Option<i32> {
        self.stop_and_hear().0
    }

    /// As [`Node::stop`]; also returns the node's messages after the first line.
    pub(crate) fn stop_and_hear(mut self) -> (Option<i32>, String) {
        self.signal("TERM");
        let status = self.child.wait().expect("the node is ours").code();
        let talk = self.talk.take().expect("it was started").join().expect("no panic");
        (status, talk)
    }

    /// Sends a signal to the node.
    pub(crate) fn signal(&self, name: &str) {
        send(name, self.child.id());
    }

    /// Waits until the node ends on its own; returns its exit status, and its messages after the first line.
    pub(crate) fn await_end(mut self) -> (Option<i32>, String) {
        let talk = self.talk.take().expect("it was started").join().expect("no panic");
        (self.child.wait().expect("the node is ours").code(), talk)
    }

    /// Reads the node's standard output, which must be piped, until the node ends.
    pub(crate) fn take_stdout(&mut self) -> JoinHandle<String> {
        let mut stdout = self.child.stdout.take().expect("it is piped");
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            text
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process.
pub(crate) fn send(signal: &str, to: u32) {
    let done = Command::new("kill").args([format!("-{signal}"), to.to_string()]).status();
    assert!(done.expect("kill is there").success());
}

/// Whether this process ignores a signal, as under `nohup`: its children then ignore it, too.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("it is there");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("it is reported");
    u64::from_str_radix(mask.trim(), 16).expect("a mask") >> (signal - 1) & 1 == 1
}

/// A runtime with one thread.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Serves a cart in this process until the process ends; returns its address.
pub(crate) fn serve(cart: impl Cart) -> String {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            send.send(listener.local_addr().expect("it is bound").to_string()).expect("the test waits");
            let incoming = TcpListenerStream::new(listener);
            Server::builder().add_service(CartServer::new(cart)).serve_with_incoming(incoming).await
        })
    });
    receive.recv().expect("the server starts")
}

/// Serves a shop in this process until the process ends; returns its address.
pub(crate) fn shop_server(name: &str) -> String {
    let (send, receive) = std::sync::mpsc::channel();
    let name = name.to_owned();
    std::thread::spawn(move || {
        runtime().block_on(async move {
            let listener = shop::server::Listener::bind("127.0.0.1:0").await.expect("a port is free");
            send.send(listener.address().expect("it is bound")).expect("the test waits");
            shop::server::serve(listener, name, std::future::pending::<()>()).await.expect("it serves");
        });
    });
    receive.recv().expect("the server starts")
}
