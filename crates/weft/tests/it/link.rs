//! `weft link emulate`: programs behind a slower and longer link.
//!
//! The programs are this test binary, started again with [`PORT`] set: the world (`far_end`) answers datagrams and
//! sends bytes to each client; the command (`near_end`) measures both.

use crate::node::{Folder, is_ignored, output, send, weft};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The port of the far end. Without it, the ends do nothing as tests.
const PORT: &str = "WEFT_TEST_LINK_PORT";
/// The number of bytes that the far end sends.
const STREAM_BYTES: usize = 3 << 20;
const WAIT: Duration = Duration::from_secs(20);
/// One link at a time: its devices belong to the machine.
static ALONE: Mutex<()> = Mutex::new(());
/// A queue that cannot be used without an argument.
const MISSING_ARGS: &str =
    "CREATE QUEUE w (n U32 = 5, t INTERVAL) AS LIMIT n PACKETS ON OVERFLOW DROP TAIL; END;\n";

fn port() -> Option<u16> {
    std::env::var(PORT).ok()?.parse().ok()
}

/// A command that runs one of the ends.
fn end(name: &str) -> Vec<String> {
    let binary = std::env::current_exe().expect("it runs").display().to_string();
    [&binary, "--exact", &format!("link::{name}"), "--nocapture", "--test-threads", "1"]
        .map(str::to_owned)
        .into()
}

/// No test itself: the far end of the link.
#[test]
fn far_end() {
    let Some(port) = port() else { return };
    let echo = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).expect("it is free");
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).expect("it is free");
    for echo in [Some(echo), UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port + 1)).ok()].into_iter().flatten() {
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((n, from)) = echo.recv_from(&mut buffer) {
                let _ = echo.send_to(&buffer[..n], from);
            }
        });
    }
    while let Ok((mut stream, _)) = listener.accept() {
        let _ = stream.write_all(&vec![7; STREAM_BYTES]);
    }
}

/// No test itself: the command behind the link. It prints its measurements.
#[test]
#[expect(clippy::disallowed_methods, reason = "a process of its own, which has nothing but this to say")]
fn near_end() {
    let Some(port) = port() else { return };
    let world: Ipv4Addr = std::env::var("WEFT_WORLD").expect("it is reported").parse().expect("an address");
    let far = SocketAddr::from((world, port));
    let begun = Instant::now();
    let mut stream = loop {
        match TcpStream::connect_timeout(&far, WAIT) {
            Ok(stream) => break stream,
            // The far end has not started yet.
            Err(_) if begun.elapsed() < WAIT => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => panic!("{error}"),
        }
    };
    let echo = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port is free");
    echo.set_read_timeout(Some(WAIT)).expect("it is one");
    let mut buffer = vec![0; 1 << 16];
    let (mut bytes, mut half) = (0, None);
    while bytes < STREAM_BYTES {
        let n = stream.read(&mut buffer).expect("it arrives");
        assert!(n > 0, "it ends too early");
        bytes += n;
        if bytes > STREAM_BYTES / 2 {
            half.get_or_insert((Instant::now(), bytes));
        }
    }
    let (since, first) = half.expect("there was one");
    let bits_per_s = (bytes - first) as f64 * 8.0 / since.elapsed().as_secs_f64();
    let rtt_ms = rtt(&echo, far);
    // IPv6, if the machine has it, has the same delay as IPv4.
    let world_v6 = std::env::var("WEFT_WORLD6").ok().and_then(|world| world.parse::<Ipv6Addr>().ok());
    let rtt_v6_ms = world_v6.map_or(rtt_ms, |world| {
        let echo = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).expect("a port is free");
        echo.set_read_timeout(Some(WAIT)).expect("it is one");
        rtt(&echo, SocketAddr::from((world, port + 1)))
    });
    writeln!(std::io::stdout(), "measured {bits_per_s} {rtt_ms} {rtt_v6_ms}").expect("it is heard");
}

/// No test itself: sends to the far end for two seconds, with or without an answer.
#[test]
fn talking_end() {
    let Some(port) = port() else { return };
    let world: Ipv4Addr = std::env::var("WEFT_WORLD").expect("it is reported").parse().expect("an address");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port is free");
    for _ in 0..400 {
        socket.send_to(&[7; 60], (world, port)).expect("it leaves");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The shortest of ten round trips, in milliseconds.
fn rtt(echo: &UdpSocket, far: SocketAddr) -> f64 {
    let once = || {
        let begun = Instant::now();
        echo.send_to(b"ping", far).expect("it leaves");
        let _ = echo.recv_from(&mut [0; 64]).expect("it comes back");
        begun.elapsed().as_secs_f64() * 1e3
    };
    std::iter::repeat_with(once).take(10).fold(f64::MAX, f64::min)
}

/// If this failed, a program would be tested behind another link than its author requested.
#[test]
fn command_sees_rate_and_delay() {
    if std::fs::File::open("/dev/net/tun").is_err() {
        return eprintln!("skipped: no TUN devices here");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let far = end("far_end").join(" ");
    let mut emulate = weft(&folder);
    let port = 20_000 + std::process::id() % 20_000;
    let file = folder.0.join("run.rec").display().to_string();
    emulate.env(PORT, port.to_string()).args(["link", "emulate", "--json", "--delay", "20ms", "--far", &far]);
    emulate.args(["--record", &file]);
    emulate.args(["--up-rate", "5mbit", "--down-rate", "20mbit", "--queue", "codel (target = '10 ms')"]);
    let done = output(emulate.arg("--").args(end("near_end")));
    let (printed, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if errors.contains("cannot make a user namespace") {
        return eprintln!("skipped: {errors}");
    }
    assert!(done.status.success(), "{printed}\n{errors}");
    let measured = printed.lines().find_map(|line| line.split_once("measured ")).expect("it measures").1;
    let figures: Vec<f64> = measured.split(' ').map(|word| word.parse().expect("a number")).collect();
    // 52 bytes of each 1500 are headers. On a busy machine the command may read late, and CoDel may take long to
    // correct slow start.
    assert!((2e6..26e6).contains(&figures[0]), "{measured}: {printed}");
    assert!((40.0..80.0).contains(&figures[1]) && (40.0..80.0).contains(&figures[2]), "{measured}");
    let summary: Value =
        serde_json::from_str(printed.lines().last().expect("there is a summary")).expect("data");
    let down = &summary["links"]["down"];
    assert!(down["through_bytes"].as_u64() > Some(STREAM_BYTES as u64), "{summary}");
    assert_eq!(down["queue"], "codel (target = '10 ms')");
    assert_eq!(down["rate_bits_per_s"], 20_000_000);
    let number = |name: &str| down[name].as_u64().expect("a number");
    let dropped: u64 =
        down["dropped"].as_object().expect("by reason").values().filter_map(Value::as_u64).sum();
    assert_eq!(number("arrived"), number("sent") + number("queued") + dropped, "{summary}");
    assert_eq!(number("sent"), number("through") + number("lost") + number("on_the_way"), "{summary}");
    recorded(&folder, &file, down);
}

/// A replay of the recorded queue agrees with the counters of the real one, and gives the reasons.
fn recorded(folder: &Folder, file: &str, down: &Value) {
    let ask = |args: &[&str]| {
        let done = output(weft(folder).arg("link").args(args));
        let (printed, errors) = (String::from_utf8_lossy(&done.stdout).into_owned(), done.stderr);
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&errors));
        printed
    };
    let shown = ask(&["show", file, "--link", "down", "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("it is data");
    let packets = shown["packets"].as_array().expect("a list");
    let n = |end: &str| packets.iter().filter(|packet| packet["end"]["end"] == end).count() as u64;
    assert_eq!(packets.len() as u64, down["arrived"].as_u64().expect("a number"));
    assert_eq!(n("sent"), down["sent"].as_u64().expect("a number"));
    for line in down["lines"].as_array().expect("a list") {
        let same = packets.iter().filter(|packet| packet["end"]["line"] == line["line"]).count() as u64;
        assert_eq!(Some(same), line["packets"].as_u64(), "{line}");
    }
    let picture = folder.0.join("down.svg").display().to_string();
    let text = ask(&["show", file, "--link", "down", "--svg", &picture]);
    assert!(text.contains("packets that wait") && text.contains('#'), "{text}");
    assert!(std::fs::read_to_string(picture).expect("it is there").ends_with("</svg>\n"));
    assert!(n("dropped") > 0, "slow start is too fast for the link: {down}");
    let listed: Value =
        serde_json::from_str(&ask(&["explain", file, "--link", "down", "--json"])).expect("data");
    let first = listed[0]["packet"].as_u64().expect("a number").to_string();
    let printed = ask(&["explain", file, &first, "--link", "down"]);
    assert!(
        printed.contains("MARK OR DROP;") && printed.contains("p.sojourn") && printed.contains("dropping"),
        "{printed}"
    );
    let unknown = output(weft(folder).args(["link", "explain", file, "1000000000"]));
    assert_eq!(unknown.status.code(), Some(1));
    let bad = folder.write("bad.rec", "e 1 1500\n");
    let bad = output(weft(folder).args(["link", "show"]).arg(bad));
    assert_eq!(bad.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("line 1: it is no recording of a link"));
}

/// A script could not see that the program behind the link failed, or the link's devices would stay on the machine.
#[test]
fn exit_status_passes_and_cleans_up() {
    if std::fs::File::open("/dev/net/tun").is_err() {
        return eprintln!("skipped: no TUN devices here");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let run = |args: &[&str]| {
        let done = output(weft(&folder).args(["link", "emulate"]).args(args));
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (status, printed) = run(&["--loss", "100%", "--", "sh", "-c", "exit 42"]);
    if printed.contains("cannot make a user namespace") {
        return eprintln!("skipped: {printed}");
    }
    assert_eq!(status, Some(42), "{printed}");
    assert!(printed.contains("ended with 42"), "{printed}");
    let (reads, errors) = std::io::pipe().expect("there is one");
    drop(reads);
    let mut deaf = weft(&folder);
    let done = deaf.args(["link", "emulate", "--", "sh", "-c", "exit 7"]).stderr(errors).status();
    assert_eq!(done.expect("it runs").code(), Some(7), "nobody listens");
    let (status, printed) = run(&["--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(status, Some(128 + 9), "{printed}");
    let (_, printed) = run(&["--", "sh", "-c", "cat /proc/net/dev >&2"]);
    assert!(printed.contains("link0:") && !printed.contains("eth0"), "{printed}");
    let small = folder.write("small.weft", "CREATE QUEUE s AS LIMIT 100 ON OVERFLOW DROP TAIL; END;\n");
    let (_, printed) = run(&["--queue", &small.display().to_string(), "--", "true"]);
    assert_eq!(printed.matches("warning[").count(), 1, "it is one file for both ways: {printed}");
    let missing_args = folder.write("wanting.weft", MISSING_ARGS);
    let (status, printed) =
        run(&["--queue", &format!("{} (t = '5 ms')", missing_args.display()), "--", "true"]);
    assert!(status == Some(0) && printed.contains("w (t = '5 ms')"), "{printed}");
    // The command ignores a network's ports and links, whose names may equal its own.
    let network = folder.write(
        "network.weft",
        "IMPORT 'library/queues/codel.weft';\nCREATE PORT inside ON memory;\nCREATE PORT b ON memory;\n\
         CREATE CHAIN c ON PORT inside -> b AS END;\nCREATE LINK up ON PORT b QUEUE codel;\n\
         CREATE QUEUE mine AS LIMIT 9 PACKETS ON OVERFLOW DROP TAIL; END;\n",
    );
    let (status, printed) = run(&["--queue", &network.display().to_string(), "--", "sh", "-c", "exit 7"]);
    assert!(status == Some(7) && printed.contains("mine"), "{printed}");
    let (status, printed) = run(&["--", "/no/such/program"]);
    assert_eq!(status, Some(1), "{printed}");
    assert!(!std::fs::read_to_string("/proc/net/dev").expect("it is there").contains("weft0"));
}

/// If this failed, an experiment with another seed would be the same experiment.
#[test]
fn seed_fixes_link_randomness() {
    if std::fs::File::open("/dev/net/tun").is_err() {
        return eprintln!("skipped: no TUN devices here");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let file = folder.0.join("run.rec").display().to_string();
    let seeds = |seed: &str| -> Option<Vec<Value>> {
        let args = ["link", "emulate", "--seed", seed, "--record", &file, "--", "true"];
        let done = output(weft(&folder).args(args));
        if String::from_utf8_lossy(&done.stderr).contains("cannot make a user namespace") {
            return None;
        }
        let text = std::fs::read_to_string(&file).expect("it is there");
        let heads = text.lines().filter(|line| line.starts_with("{\"weft_recording\""));
        let heads = heads.map(|line| serde_json::from_str::<Value>(line).expect("it is data"));
        Some(heads.map(|head| head["seed"].clone()).collect())
    };
    let Some(first) = seeds("1") else { return eprintln!("skipped: no namespaces here") };
    assert!(first.len() == 2 && first[0] != first[1], "each way draws by itself: {first:?}");
    assert_eq!(seeds("1"), Some(first.clone()));
    assert_ne!(seeds("2"), Some(first));
}

/// A user with a mistyped far command would look for the fault in the link, or in the near command.
#[test]
fn early_far_end_exit_is_reported() {
    if std::fs::File::open("/dev/net/tun").is_err() {
        return eprintln!("skipped: no TUN devices here");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let run = |args: &[&str]| {
        let mut emulate = weft(&folder);
        output(emulate.args(["link", "emulate"]).args(args).args(["--", "sleep", "0.5"]))
    };
    let printed = String::from_utf8_lossy(&run(&["--far", "no_such_program"]).stderr).into_owned();
    if printed.contains("cannot make a user namespace") {
        return eprintln!("skipped: {printed}");
    }
    assert!(printed.contains("link: the far command ended with 127 after 0."), "{printed}");
    for (far, status, signal) in [("exit 3", Some(3), None), ("kill -KILL $$", None, Some(9))] {
        let printed: Value = serde_json::from_slice(&run(&["--json", "--far", far]).stdout).expect("data");
        assert_eq!((&printed["far"]["status"], &printed["far"]["signal"]), (&status.into(), &signal.into()));
    }
    let stays = run(&["--json", "--far", "sleep 60"]);
    let printed: Value = serde_json::from_slice(&stays.stdout).expect("data");
    assert!(printed["far"].is_null() && printed["status"] == 0, "{printed}");
}

/// A program would run on without a network after its terminal closes, and its recording would be lost.
#[test]
fn signal_passes_and_recording_is_whole() {
    if std::fs::File::open("/dev/net/tun").is_err() {
        return eprintln!("skipped: no TUN devices here");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let (up, file) = (folder.0.join("up"), folder.0.join("run.rec"));
    let near = format!("touch {}; exec sleep 60", up.display());
    for (name, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("TERM", 15)] {
        if is_ignored(number) {
            continue;
        }
        let mut emulate = weft(&folder);
        emulate.args(["link", "emulate", "--record"]).arg(&file).args(["--", "sh", "-c", &near]);
        // A process group of its own: it is not in the foreground of a terminal.
        let mut running = emulate.process_group(0).stderr(Stdio::piped()).spawn().expect("it starts");
        let until = Instant::now() + WAIT;
        while !up.exists() && running.try_wait().expect("it is ours").is_none() {
            assert!(Instant::now() < until, "it does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        if up.exists() {
            send(name, running.id());
        }
        let done = running.wait_with_output().expect("it is ours");
        let printed = String::from_utf8_lossy(&done.stderr);
        if printed.contains("cannot make a user namespace") {
            return eprintln!("skipped: {printed}");
        }
        assert_eq!(done.status.code(), Some(128 + number), "{printed}");
        assert!(printed.contains(&format!("ended by signal {number}")), "{printed}");
        let shown = output(weft(&folder).args(["link", "show"]).arg(&file));
        assert!(shown.status.success(), "{name}: {}", String::from_utf8_lossy(&shown.stderr));
        std::fs::remove_file(&up).expect("it is there");
    }
}

/// Processes at both ends would survive a killed link, and keep their ports.
#[test]
fn link_end_ends_both_sides() {
    if std::fs::File::open("/dev/net/tun").is_err() {
        return eprintln!("skipped: no TUN devices here");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let path_of = |name: &str| folder.0.join(name);
    let far = format!("echo $$ > {}; sleep 61 & sleep 60", path_of("far").display());
    // It ignores SIGTERM, and has started a process in its own session.
    let near = format!(
        "trap '' TERM; setsid sleep 62 & echo $! > {}; echo $$ > {}; exec sleep 60",
        path_of("other").display(),
        path_of("near").display()
    );
    let mut emulate = weft(&folder);
    emulate.args(["link", "emulate", "--far", &far, "--", "sh", "-c", &near]);
    let mut running = emulate.stderr(Stdio::piped()).spawn().expect("it starts");
    let number =
        |name: &str| -> Option<u32> { std::fs::read_to_string(path_of(name)).ok()?.trim().parse().ok() };
    let until = Instant::now() + WAIT;
    let (far, near) = loop {
        if let (Some(far), Some(near), Some(other)) = (number("far"), number("near"), number("other")) {
            break (far, [near, other]);
        }
        if running.try_wait().expect("it is ours").is_some() {
            let mut printed = String::new();
            running.stderr.take().expect("it is heard").read_to_string(&mut printed).expect("it is text");
            assert!(printed.contains("cannot make a user namespace"), "{printed}");
            return eprintln!("skipped: {printed}");
        }
        assert!(Instant::now() < until, "it does not start");
        std::thread::sleep(Duration::from_millis(20));
    };
    // All processes of the far end are in its group.
    let is_there = || {
        let processes = std::fs::read_dir("/proc").expect("it is there").flatten();
        let stats = processes.filter_map(|one| std::fs::read_to_string(one.path().join("stat")).ok());
        let group = far.to_string();
        let mut groups = stats.filter_map(|stat| {
            let mut words = stat.rsplit_once(") ")?.1.split(' ');
            (words.next()? != "Z").then(|| words.nth(1).map(str::to_owned))?
        });
        groups.any(|of| of == group)
    };
    assert!(is_there());
    running.kill().expect("it runs");
    running.wait().expect("it is ours");
    while is_there() || near.iter().any(|pid| runs(*pid)) {
        assert!(Instant::now() < until, "an end is left behind");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process is alive, and not a zombie.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Processes that a command leaves behind would go on without a link, and keep their ports and files.
#[test]
fn orphan_processes_end_with_link() {
    if std::fs::File::open("/dev/net/tun").is_err() {
        return eprintln!("skipped: no TUN devices here");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let file = folder.0.join("left");
    let command = format!("setsid sleep 63 > /dev/null 2>&1 & echo $! > {}; exit 3", file.display());
    let done = output(weft(&folder).args(["link", "emulate", "--", "sh", "-c", &command]));
    let errors = String::from_utf8_lossy(&done.stderr);
    if errors.contains("cannot make a user namespace") {
        return eprintln!("skipped: {errors}");
    }
    assert_eq!(done.status.code(), Some(3), "{errors}");
    let left = std::fs::read_to_string(file).expect("it was begun").trim().parse().expect("a number");
    assert!(!runs(left), "it is left behind");
}

/// A link would silently be impaired in another way than requested, or at another time.
#[test]
fn path_events_are_counted_and_shown() {
    if std::fs::File::open("/dev/net/tun").is_err() {
        return eprintln!("skipped: no TUN devices here");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let schedule =
        folder.write("schedule", "# up all goes wrong, and then nothing\n1s up-loss=0% up-duplicate=0%\n");
    let file = folder.0.join("run.rec").display().to_string();
    let port = 40_000 + std::process::id() % 20_000;
    let done = output(
        weft(&folder)
            .env(PORT, port.to_string())
            .args(["link", "emulate", "--json", "--far", &end("far_end").join(" "), "--record", &file])
            .args(["--up-loss-bursts", "5%,50%"])
            .args(["--up-duplicate", "20%", "--down-reorder", "20%", "--down-reorder-distance", "2"])
            .arg("--schedule")
            .arg(&schedule)
            .arg("--")
            .args(end("talking_end")),
    );
    let (printed, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if errors.contains("cannot make a user namespace") {
        return eprintln!("skipped: {errors}");
    }
    let summary: Value =
        serde_json::from_str(printed.lines().last().unwrap_or_default()).expect("it is data");
    let of = |link: &str, what: &str| summary["links"][link][what].as_u64().expect("a number");
    assert!(of("up", "lost") > 0 && of("up", "duplicated") > 0 && of("down", "reordered") > 0, "{summary}");
    assert_eq!((of("down", "lost"), of("up", "changes"), of("down", "changes")), (0, 1, 0));
    for (link, what) in [("up", "lost"), ("up", "duplicated"), ("down", "reordered")] {
        let args = ["link", "show", &file, "--link", link, "--json"];
        let shown = output(weft(&folder).args(args));
        let shown: Value = serde_json::from_slice(&shown.stdout).expect("it is data");
        assert_eq!(shown[what].as_u64(), Some(of(link, what)), "{what}");
        let ends = shown["packets"].as_array().expect("a list").iter();
        let mut late = ends.filter(|one| one["came_ns"].as_i64() > Some(1_100_000_000));
        assert!(link == "down" || late.all(|one| one["end"]["way"].is_null()), "its time is over");
    }
}

/// A typing error would destroy an earlier recording; a mistyped path would count as a fault of the machine.
#[test]
fn failed_record_keeps_old_file() {
    let folder = Folder::new();
    let file = folder.write("kept.rec", "what is there\n");
    let record = |file: &str| {
        let mut record = weft(&folder);
        record.args(["link", "record", "wan", "--admin", "127.0.0.1:1", "-o", file]);
        let done = output(&mut record);
        assert_eq!(done.status.code(), Some(3), "{}", String::from_utf8_lossy(&done.stderr));
    };
    record(&file.display().to_string());
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "what is there\n");
    let other = folder.0.join("other.rec");
    record(&other.display().to_string());
    assert!(!other.exists());
}

/// A user with a broken trace, or an unknown queue, would not learn what to fix.
#[test]
fn link_errors_show_before_start() {
    let folder = Folder::new();
    let trace = folder.write("broken.down", "1\n2\nfast\n");
    let run = |args: &[&str]| {
        let done = output(weft(&folder).args(["link", "emulate"]).args(args).args(["--", "true"]));
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (status, printed) = run(&["--trace", &trace.display().to_string()]);
    assert_eq!(status, Some(1));
    assert!(printed.contains("line 3: `fast` is not a whole number of milliseconds"), "{printed}");
    let (status, printed) = run(&["--queue", "codle"]);
    assert_eq!(status, Some(1));
    assert!(printed.contains("no queue `codle`") && printed.contains(" codel,"), "{printed}");
    let (status, printed) = run(&["--rate", "15"]);
    assert_eq!(status, Some(2));
    assert!(printed.contains("15mbit"), "{printed}");
    for (option, value, bound) in [
        ("--rate", "20000gbit", "1000gbit at most"),
        ("--rate", "0bit", "1bit at least"),
        ("--delay", "-5ms", "not less than 0"),
        ("--up-loss", "-1%", "not less than 0"),
        ("--loss-bursts", "1%,2%,3%,4%,5%", "four shares at most"),
        ("--reorder-distance", "0", "1 at least"),
        ("--keep-order", "--jitter", "a value is required"),
    ] {
        let (status, printed) = run(&[option, value]);
        assert_eq!(status, Some(2), "{printed}");
        assert!(printed.contains(bound) && !printed.contains("as a value, use"), "{printed}");
    }
    for args in [
        ["--keep-order", "--delay", "1ms"],
        ["--up-reorder-distance", "3", "--down-reorder=1%"],
        ["--reorder-gap", "5", "--loss=1%"],
    ] {
        let (status, printed) = run(&args);
        assert!(status == Some(2) && printed.contains("changes nothing without"), "{printed}");
    }
    let (status, printed) = run(&["--loss", "1%", "--loss-bursts", "1%,2%"]);
    assert!(status == Some(2) && printed.contains("cannot be used with"), "{printed}");
    let schedule = folder.write("schedule", "1s rate=1mbit\n\n2s qeue=fifo\n");
    let schedule = schedule.display().to_string();
    let (status, printed) = run(&["--schedule", &schedule]);
    assert!(
        status == Some(1) && printed.contains("schedule: line 3: `qeue` is nothing that changes"),
        "{printed}"
    );
    let whole = folder.write("whole.up", "1\n").display().to_string();
    let rates = folder.write("rates", "# no rate\n1s rate=1mbit\n").display().to_string();
    let (status, printed) = run(&["--up-trace", &whole, "--schedule", &rates]);
    assert!(status == Some(1) && printed.contains("line 2: a trace says when `up` sends"), "{printed}");
    let own = folder.write("own.weft", "-- No queue.\n");
    let (status, printed) = run(&["--queue", &own.display().to_string()]);
    assert!(status == Some(1) && printed.contains("creates no queue"), "{printed}");
    let (file, ran) = (folder.0.join("nowhere/run.rec"), folder.0.join("ran"));
    let mut emulate = weft(&folder);
    let done =
        output(emulate.args(["link", "emulate", "--record"]).arg(&file).args(["--", "touch"]).arg(&ran));
    let printed = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.code() == Some(3) && printed.contains("nowhere/run.rec: No such file"), "{printed}");
    assert!(!ran.exists(), "nobody waits for what is lost");
    let missing_args = folder.write("wanting.weft", MISSING_ARGS);
    let (status, printed) = run(&["--queue", &missing_args.display().to_string()]);
    assert!(status == Some(1) && printed.contains("queue `w` needs an argument for `t`"), "{printed}");
    assert!(printed.contains("wanting.weft (t = ...)"), "{printed}");
}
