//! The output for people and for scripts: texts, exit statuses, the admin endpoint.

use crate::node::{Folder, Node, is_ignored, output, runtime, shop_server, weft};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

const NETWORK: &str = "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT only_alice ON rpc (user TEXT) AS
  ON REQUEST
    SELECT * FROM input WHERE user = 'alice' ELSE ABORT PERMISSION_DENIED 'only alice';
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/*' AS
  only_alice;
END;
";

/// A script must be able to tell whose fault it was: 0 none, 1 the input's, 2 the command line's, 3 the machine's.
#[test]
fn exit_status_names_fault() {
    let folder = Folder::new();
    let good = folder.write("good.weft", NETWORK);
    let bad = folder.write("bad.weft", &NETWORK.replace("user = 'alice'", "usr = 'alice'"));
    let status =
        |args: &[&str], file: &std::path::Path| output(weft(&folder).args(args).arg(file)).status.code();
    assert_eq!(status(&["check"], &good), Some(0));
    assert_eq!(status(&["check"], &bad), Some(1));
    assert_eq!(status(&["run", "--admin", "127.0.0.1:0"], &bad), Some(1));
    assert_eq!(status(&["check", "--no-such-option"], &good), Some(2));
    assert_eq!(status(&["check"], &folder.0.join("absent.weft")), Some(3));
    assert_eq!(status(&["run"], &folder.0.join("absent.weft")), Some(3));
    assert_eq!(status(&["apply", "--admin", "127.0.0.1:1"], &good), Some(3));
    assert_eq!(status(&["run", "--admin", "0.0.0.0:0"], &good), Some(2));
    assert_eq!(status(&["run", "--workers", "0"], &good), Some(2));
    assert_eq!(status(&["run", "--grace", "never"], &good), Some(2));
    assert_eq!(status(&["run", "--grace", "-1"], &good), Some(2));
    assert_eq!(status(&["fmt"], &folder.0.join("absent.weft")), Some(3));
    assert_eq!(status(&["check"], &folder.0), Some(3));
    let bytes = folder.write("bytes.weft", "");
    std::fs::write(&bytes, [0xff, 0xfe, 0]).expect("the folder is ours");
    for command in ["check", "run", "fmt", "import"] {
        assert_eq!(status(&[command], &bytes), Some(1), "{command}");
    }
    let imports = folder.write("imports.weft", "IMPORT 'bytes.weft';\n");
    assert_eq!(status(&["check"], &imports), Some(1));
    assert_eq!(status(&["status", "--admin", "127.0.0.1:1", "--token-file"], &good), Some(3));
}

/// A script would take a file that a full disk has truncated for a complete one. A reader that closes its end is no
/// fault.
#[test]
fn full_stdout_fails_closed_one_does_not() {
    let folder = Folder::new();
    folder.write("shop.weft", NETWORK);
    folder.write("plain.weft", "CREATE PORT wan ON memory;\nCREATE CHAIN edge ON PORT wan AS END;\n");
    folder.write(
        "codel.weft",
        "CREATE QUEUE short AS LIMIT 9 PACKETS ON OVERFLOW DROP TAIL; ON DEQUEUE SEND; END;\n",
    );
    folder.write("none.pcap", "");
    let rules = "*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n";
    folder.write("rules", rules);
    let empty = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\x04\0\x01\0\0\0";
    std::fs::write(folder.0.join("none.pcap"), empty).expect("the folder is ours");
    let node = Node::start(&folder, &folder.0.join("shop.weft"), &[]);
    let of_node =
        ["status", "status --json", "status --program", "query", "query -o json", "top --every 0.1"];
    let of_node = of_node.map(|command| format!("{command} --admin {}", node.admin));
    let selects = [&["-o", "json"][..], &[]].map(|args| [&["query", "SELECT * FROM links"], args].concat());
    let selects = selects.map(|args| [args, vec!["--admin", &node.admin]].concat());
    let alone = [
        "check shop.weft",
        "check shop.weft --json",
        "explain shop.weft",
        "explain shop.weft --json",
        "compile codel.weft --target verilog",
        "fmt --stdout shop.weft",
        "import rules",
        "man",
        "completions bash",
        "replay plain.weft --in none.pcap",
        "replay plain.weft --in none.pcap -o json",
        "sim run codel.weft --seeds 1 --for 10ms",
    ];
    let alone = alone.into_iter().chain(of_node.iter().map(String::as_str));
    let all = alone.map(|command| command.split(' ').collect::<Vec<_>>()).chain(selects);
    for args in all {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("it is always there");
        let done = output(weft(&folder).current_dir(&folder.0).args(&args).stdout(full));
        let printed = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            printed.contains("weft: cannot write to standard output: No space left"),
            "{args:?}: {printed}"
        );
        assert_eq!(done.status.code(), Some(3), "{args:?}");

        let (reader, writer) = std::io::pipe().expect("there is room for one");
        drop(reader);
        let done = output(weft(&folder).current_dir(&folder.0).args(&args).stdout(writer));
        let printed = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(0), "{args:?}: {printed}");
        assert!(
            !printed.to_lowercase().contains("pipe") && !printed.contains("standard output"),
            "{args:?}: {printed}"
        );
    }
}

/// A user with a mistyped schema path would be told to look for include paths.
#[test]
fn missing_schema_is_reported() {
    let folder = Folder::new();
    let file = folder.write("lost.weft", &NETWORK.replace("'cart.proto'", "'carts.proto'"));
    let done = output(weft(&folder).arg("check").arg(&file));
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(text.contains("cannot read the messages of `carts.proto`: there is no such file"), "{text}");
    assert_eq!(done.status.code(), Some(3), "{text}");
    let imports = "syntax = \"proto3\"; import \"lost.proto\";";
    folder.write("carts.proto", imports);
    let done = output(weft(&folder).arg("check").arg(&file));
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(text.contains("lost.proto"), "{text}");
}

/// A node would refuse a program that the check accepts.
#[test]
fn check_reports_port_queue_limit() {
    let folder = Folder::new();
    let many = "CREATE PORT wan ON packet 'eth0' WITH (queues = 257);\n";
    let file = folder.write("many.weft", many);
    let done = output(weft(&folder).arg("check").arg(&file));
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(text.contains("a port has 1 to 256 `queues`"), "{text}");
    assert_eq!(done.status.code(), Some(1));
    let file = folder.write("few.weft", &many.replace("257", "256"));
    assert_eq!(output(weft(&folder).arg("check").arg(&file)).status.code(), Some(0));
}

/// A user with a changed library would get half of it, and half of ours.
#[test]
fn library_folder_files_import_another() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.0.join("net/library/elements")).expect("the folder is ours");
    std::fs::create_dir_all(folder.0.join("net/library/protocols")).expect("the folder is ours");
    folder.write("net/library/elements/meter.weft", "IMPORT 'library/protocols/all.weft';\n");
    let main = folder.write("net/main.weft", "IMPORT 'library/elements/meter.weft';\n");
    assert_eq!(output(weft(&folder).arg("check").arg(&main)).status.code(), Some(0));
    folder.write("net/library/protocols/all.weft", "CREATE NOTHING;\n");
    let done = output(weft(&folder).arg("check").arg(&main));
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(text.contains("net/library/protocols/all.weft:1"), "{text}");
}

/// A fault outside of the program must take one line, with its help in another.
#[test]
fn machine_errors_take_one_line() {
    let folder = Folder::new();
    let good = folder.write("good.weft", NETWORK);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = taken.local_addr().expect("it is bound").to_string();
    let printed = |command: &mut std::process::Command| {
        let done = output(command);
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(3), "{text}");
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("weft: ") && lines.len() <= 2, "{text}");
        assert!(lines.get(1).is_none_or(|line| line.starts_with("  help: ")), "{text}");
        text
    };
    let absent = printed(weft(&folder).args(["run", "absent.weft"]));
    assert!(absent.contains("cannot read `absent.weft`: there is no such file"), "{absent}");
    let admin = printed(weft(&folder).args(["run", "--admin", &taken]).arg(&good));
    assert!(admin.contains(&taken) && admin.contains("--admin 127.0.0.1:PORT"), "{admin}");
    // 192.0.2.0/24 is for documentation: no machine has such an address (RFC 5737).
    let elsewhere = folder.write("elsewhere.weft", &NETWORK.replace("127.0.0.1:0", "192.0.2.1:1"));
    let elsewhere = printed(weft(&folder).args(["run", "--admin", "127.0.0.1:0"]).arg(&elsewhere));
    assert!(elsewhere.contains("listener `frontend` cannot listen on 192.0.2.1:1"), "{elsewhere}");
    let socket = NETWORK.replace("tcp '127.0.0.1:0'", "unix '/proc/weft.sock'");
    let forbidden = folder.write("forbidden.weft", &socket);
    printed(weft(&folder).args(["run", "--admin", "127.0.0.1:0"]).arg(&forbidden));
    printed(weft(&folder).args(["status", "--admin", "127.0.0.1:1"]));
    let no_folder = folder.0.join("good.weft").display().to_string();
    let mut no_runtime = weft(&folder);
    let no_token = printed(no_runtime.env("XDG_RUNTIME_DIR", &no_folder).arg("run").arg(&good));
    assert!(no_token.contains("cannot write the admin token"), "{no_token}");
}

/// A missing file or name is a fault of the machine: the program is right.
#[test]
fn missing_resource_is_machine_fault() {
    let folder = Folder::new();
    let check = |text: &str, args: &[&str], code: &str| {
        let file = folder.write("network.weft", text);
        let done = output(weft(&folder).args(args).arg(&file));
        let printed = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(printed.contains(code), "{printed}");
        done.status.code()
    };
    let import = format!("IMPORT 'absent.weft';\n{NETWORK}");
    assert_eq!(check(&import, &["check"], "W0201"), Some(3));
    let proto = NETWORK.replace("cart.proto", "absent.proto");
    assert_eq!(check(&proto, &["check"], "W0203"), Some(3));
    assert_eq!(check(&proto, &["apply", "--admin", "127.0.0.1:1"], "W0203"), Some(3));
    folder.write("other.proto", "syntax = \"proto3\";\nimport \"absent.proto\";\n");
    let imported = NETWORK.replace("cart.proto", "other.proto");
    assert_eq!(check(&imported, &["check"], "W0229"), Some(3));
    folder.write("bad.proto", "syntax = nonsense;\n");
    let bad = NETWORK.replace("cart.proto", "bad.proto");
    assert_eq!(check(&bad, &["check"], "W0229"), Some(1));
    // RFC 6761 section 6.4: no name below `invalid` has an address.
    let host = NETWORK.replace("127.0.0.1:0'", "front.invalid:0'");
    assert_eq!(check(&host, &["run", "--admin", "127.0.0.1:0"], "W0503"), Some(3));
    let node = Node::start(&folder, &folder.write("good.weft", NETWORK), &[]);
    assert_eq!(check(&host, &["apply", "--admin", &node.admin], "W0503"), Some(3));
}

/// A node has none of the client's files: the client must send everything that it read.
#[test]
fn proto_roots_and_sets_reach_node() {
    let folder = Folder::new();
    let node = Node::start(&folder, &folder.write("good.weft", NETWORK), &[]);
    std::fs::create_dir_all(folder.0.join("vendor/acme")).expect("the folder is ours");
    folder.write("vendor/acme/id.proto", "edition = \"2023\"; package acme; message Id { string name = 1; }");
    folder.write(
        "top.proto",
        "syntax = \"proto3\"; package shop; import \"acme/id.proto\"; message Req { acme.Id id = 1; }
         service Top { rpc Get(Req) returns (Req); }",
    );
    // file { name: "x.proto" package: "x" message_type { name: "M" field { name: "id" number: 1 label: LABEL_OPTIONAL
    // type: TYPE_STRING } } service { name: "S" method { name: "Get" input_type: ".x.M" output_type: ".x.M" } } }
    let set = b"\x0a5\x0a\x07x.proto\x12\x01x\x22\x0f\x0a\x01M\x12\x0a\x0a\x02id\x18\x01\x20\x01(\x09\
        2\x16\x0a\x01S\x12\x11\x0a\x03Get\x12\x04.x.M\x1a\x04.x.M";
    std::fs::write(folder.0.join("x.binpb"), set).expect("the folder is ours");
    let network = |types: &str, method: &str, field: &str| {
        let text = NETWORK.replace("CREATE TYPE cart FROM PROTO 'cart.proto';", types);
        let text = text.replace("shop.Cart/*", method).replace("user TEXT)", "user TEXT?)");
        folder.write(
            "network.weft",
            &text.replace("  only_alice;", &format!("  only_alice (user := {field});")),
        )
    };
    let status = |args: &[&str], file: &std::path::Path| {
        let done = output(weft(&folder).args(args).args(["--admin", &node.admin]).arg(file));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let named =
        network("CREATE TYPE t FROM PROTO 'top.proto' IN '.', 'vendor';", "shop.Top/*", "req.id.name");
    status(&["apply"], &named);
    let unnamed = network("CREATE TYPE t FROM PROTO 'top.proto';", "shop.Top/*", "req.id.name");
    let absent = output(weft(&folder).arg("check").arg(&unnamed));
    assert!(String::from_utf8_lossy(&absent.stderr).contains("--proto-path"), "{absent:?}");
    let vendor = folder.0.join("vendor").display().to_string();
    status(&["apply", "--proto-path", &vendor], &unnamed);
    let descriptors = network("CREATE TYPE t FROM DESCRIPTORS 'x.binpb';", "x.S/*", "req.id");
    status(&["apply"], &descriptors);
}

/// A rule could not tell an absent wrapper from an empty one.
#[test]
fn wrapper_binds_as_nullable_scalar() {
    let folder = Folder::new();
    folder.write(
        "cart.proto",
        "syntax = \"proto3\"; package shop; import \"google/protobuf/wrappers.proto\";
         message Req { google.protobuf.StringValue user = 1; } service Cart { rpc Get(Req) returns (Req); }",
    );
    let check = |column: &str, stage: &str| {
        let text = NETWORK.replace("user TEXT)", column).replace("  only_alice;", stage);
        let done = output(weft(&folder).arg("check").arg(folder.write("network.weft", &text)));
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    assert_eq!(check("user TEXT?)", "  only_alice;").0, Some(0));
    // Both are one field of the message: an element that sets one sets the other.
    let both = check("user TEXT?, name TEXT?)", "  only_alice (user := req.user, name := req.user.value);");
    assert_eq!(both.0, Some(0), "{}", both.1);
    let (status, printed) = check("user TEXT)", "  only_alice;");
    assert!(status == Some(1) && printed.contains("W0217") && printed.contains("`user TEXT?`"), "{printed}");
}

/// A network whose log is lost would look healthy until an operator needs the log.
#[test]
fn unopenable_sink_stops_start() {
    let folder = Folder::new();
    let file = folder.0.join("nowhere/log.json").display().to_string();
    let element = format!(
        "CREATE ELEMENT note ON rpc AS
  SINK calls (status STATUS) TO FILE '{file}';
  ON CLOSE INSERT INTO calls VALUES (status);
END;
"
    );
    let logging = format!("{element}{}", NETWORK.replace("  only_alice;", "  only_alice -> note;"));
    let logging = folder.write("logging.weft", &logging);
    let refused = |args: &[&str]| {
        let done = output(weft(&folder).args(args).arg(&logging));
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(3), "{text}");
        let line =
            format!("weft: sink `shop.note.calls` cannot write to `{file}`: there is no such folder\n");
        assert!(text.starts_with(&line), "{text}");
        text
    };
    refused(&["run", "--admin", "127.0.0.1:0"]);
    let node = Node::start(&folder, &folder.write("good.weft", NETWORK), &[]);
    for args in [&["apply", "--admin", &node.admin][..], &["apply", "--dry-run", "--admin", &node.admin]] {
        let text = refused(args);
        assert!(text.ends_with("nothing was applied, version 1 keeps running\n"), "{text}");
    }
    std::fs::create_dir(folder.0.join("nowhere")).expect("the folder is ours");
    let dry = output(weft(&folder).args(["apply", "--dry-run", "--admin", &node.admin]).arg(&logging));
    assert_eq!(dry.status.code(), Some(0), "{}", String::from_utf8_lossy(&dry.stderr));
    assert!(!std::path::Path::new(&file).exists(), "a dry run has made a file");
}

/// A script needs one object for every outcome of an update.
#[test]
fn apply_json_is_one_object() {
    let folder = Folder::new();
    let good = folder.write("good.weft", NETWORK);
    let bad = folder.write("bad.weft", &NETWORK.replace("user = 'alice'", "usr = 'alice'"));
    let host = folder.write("host.weft", &NETWORK.replace("127.0.0.1:0'", "front.invalid:0'"));
    let node = Node::start(&folder, &good, &[]);
    let apply = |file: &std::path::Path, admin: &str| {
        let done = output(weft(&folder).args(["apply", "--json", "--admin", admin]).arg(file));
        assert_eq!(String::from_utf8_lossy(&done.stderr), "");
        let data: serde_json::Value = serde_json::from_slice(&done.stdout).expect("one JSON object");
        (done.status.code(), data)
    };
    let (status, refused) = apply(&bad, &node.admin);
    assert_eq!((status, &refused["version"], &refused["at_fault"]), (Some(1), &1.into(), &"program".into()));
    assert!(refused["text"].as_str().is_some_and(|text| text.contains("usr")), "{refused}");
    assert!(
        refused["diagnostics"][0]["code"].as_str().is_some_and(|code| code.starts_with("W0")),
        "{refused}"
    );
    let (status, refused) = apply(&host, &node.admin);
    assert_eq!((status, &refused["at_fault"]), (Some(3), &"environment".into()));
    assert_eq!(refused["diagnostics"][0]["code"], "W0503", "{refused}");
    let (status, unasked) = apply(&bad, "127.0.0.1:1");
    assert_eq!((status, &unasked["version"]), (Some(1), &0.into()));
    let (status, applied) = apply(&good, &node.admin);
    assert_eq!((status, &applied["version"]), (Some(0), &2.into()));
    assert_eq!(applied["diagnostics"], serde_json::json!([]));
}

/// A help that names the wrong obstacle sends a person looking in the wrong place.
#[test]
fn help_texts_name_the_obstacle() {
    let folder = Folder::new();
    let printed = |args: &[&str]| {
        let done = output(weft(&folder).args(args));
        assert_eq!(done.status.code(), Some(3));
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let socket = folder.0.join("nowhere/front.sock").display().to_string();
    let unix = folder.write("unix.weft", &NETWORK.replace("tcp '127.0.0.1:0'", &format!("unix '{socket}'")));
    let missing = printed(&["run", "--admin", "127.0.0.1:0", &unix.display().to_string()]);
    let named = format!("make the folder `{}`", folder.0.join("nowhere").display());
    assert!(missing.contains(&named), "{missing}");
    let other = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = other.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = other.accept() {
            let _ = stream
                .write_all(b"SSH-2.0-other\r\n\r\n")
                .and_then(|()| stream.read(&mut [0; 512]).map(drop));
        }
    });
    let token = folder.write_private("token", "00").display().to_string();
    let not_http = printed(&["status", "--admin", &address, "--token-file", &token]);
    assert!(not_http.contains("is no admin endpoint") && not_http.contains("another program"), "{not_http}");
}

/// A node with thousands of connections would end at the 1,024 files that shells allow.
#[test]
fn node_raises_descriptor_limit() {
    let folder = Folder::new();
    let network = folder.write("network.weft", NETWORK);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -S -n 64; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_weft")]);
    command.env("XDG_RUNTIME_DIR", &folder.0);
    let node = Node::start_as(command, &network, &[]);
    let limits = node.proc_file("limits");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("it is listed");
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{line}");
}

/// A failed `fmt` would leave half a file, or a successful one would change its permissions.
#[test]
fn fmt_replaces_file_keeps_mode() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
    let folder = Folder::new();
    let file = folder.write("network.weft", &NETWORK.replace("  SELECT", "select"));
    let link = folder.0.join("link.weft");
    symlink(&file, &link).expect("the folder takes links");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).expect("it is ours");
    let before = std::fs::metadata(&file).expect("it is there");
    assert_eq!(output(weft(&folder).arg("fmt").arg(&link)).status.code(), Some(0));
    let after = std::fs::metadata(&file).expect("it is there");
    assert_eq!(after.mode(), before.mode());
    assert_ne!(after.ino(), before.ino(), "the file was written into");
    assert!(std::fs::symlink_metadata(&link).expect("it is there").is_symlink());
    let names: Vec<_> = std::fs::read_dir(&folder.0).expect("it is ours").flatten().collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

/// Pages and completions come from the command line's definition, so they cannot lag behind it.
#[test]
fn commands_have_manual_and_completion() {
    let folder = Folder::new();
    let manual = |args: &[&str]| {
        let done = output(weft(&folder).args(args));
        assert!(done.status.success(), "{args:?}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    assert!(manual(&["man"]).contains(".TH weft 1"), "{}", manual(&["man"]));
    assert!(manual(&["man", "run"]).contains(".TH weft-run 1"), "{}", manual(&["man", "run"]));
    for shell in ["bash", "zsh", "fish"] {
        assert!(manual(&["completions", shell]).contains("apply"), "{shell}");
    }
    assert_eq!(output(weft(&folder).args(["man", "nonsense"])).status.code(), Some(2));
}

/// A user who asks for a dry run must see the changes, and the node must not make them.
#[test]
fn dry_run_prints_changes() {
    let folder = Folder::new();
    let network = folder.write("network.weft", NETWORK);
    let node = Node::start(&folder, &network, &[]);
    let stricter = folder.write("network.weft", &NETWORK.replace("user = 'alice'", "user = 'al'"));
    let dry = output(weft(&folder).args(["apply", "--dry-run", "--admin", &node.admin]).arg(&stricter));
    let text = String::from_utf8_lossy(&dry.stdout).into_owned();
    assert!(dry.status.success(), "{}", String::from_utf8_lossy(&dry.stderr));
    assert!(
        text.contains("version 2 would run; nothing was applied\n  changed  element only_alice\n"),
        "{text}"
    );
    let status = output(weft(&folder).args(["status", "--json", "--admin", &node.admin]));
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("one JSON object");
    assert_eq!(status["version"], 1);
}

#[test]
fn error_shows_location_and_help() {
    let folder = Folder::new();
    let bad = folder.write("bad.weft", &NETWORK.replace("user = 'alice'", "usr = 'alice'"));
    let printed = output(weft(&folder).arg("check").arg(&bad));
    let text = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert!(text.contains("error[W0") && text.contains("usr") && text.contains("help:"), "{text}");
    let printed = output(weft(&folder).args(["check", "--json"]).arg(&bad));
    let data: serde_json::Value = serde_json::from_slice(&printed.stdout).expect("one JSON value");
    assert!(data.to_string().contains("W0"), "{data}");
    let good = folder.write("good.weft", NETWORK);
    let printed = output(weft(&folder).args(["check", "--json", "--cost"]).arg(&good));
    let data: serde_json::Value = serde_json::from_slice(&printed.stdout).expect("one JSON value");
    assert_eq!(data["costs"][0]["element"], "only_alice", "{data}");
}

#[test]
fn fmt_check_then_fmt_is_stable() {
    let folder = Folder::new();
    let file = folder.write("network.weft", &NETWORK.replace("  SELECT", "select"));
    assert_eq!(output(weft(&folder).args(["fmt", "--check"]).arg(&file)).status.code(), Some(1));
    assert_eq!(output(weft(&folder).arg("fmt").arg(&file)).status.code(), Some(0));
    assert_eq!(output(weft(&folder).args(["fmt", "--check"]).arg(&file)).status.code(), Some(0));
}

/// A program from a pipe, or a folder, would be treated differently from a file.
#[test]
fn check_reads_stdin_and_folders() {
    let folder = Folder::new();
    let piped = |args: &[&str], text: &str| {
        let mut command = weft(&folder);
        command.args(args).current_dir(&folder.0);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        child.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("it reads");
        let done = child.wait_with_output().expect("it ends");
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let ugly = NETWORK.replace("  SELECT", "select");
    assert_eq!(piped(&["fmt", "-"], &ugly), (Some(0), NETWORK.to_owned()));
    assert_eq!(piped(&["fmt", "--check", "-"], &ugly).0, Some(1));
    assert_eq!(piped(&["fmt", "--check", "-"], NETWORK).0, Some(0));
    assert_eq!(piped(&["fmt", "-"], "CREATE").0, Some(1));
    assert_eq!(piped(&["check", "-"], NETWORK).0, Some(0));
    assert_eq!(piped(&["check", "-"], &NETWORK.replace("user = 'alice'", "usr = 'alice'")).0, Some(1));
    std::fs::create_dir(folder.0.join("parts")).expect("the folder is ours");
    let inner = folder.write("parts/a.weft", &ugly);
    assert_eq!(output(weft(&folder).arg("fmt").arg(&folder.0)).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(inner).expect("it is there"), NETWORK);
}

/// A port in use is the machine's fault: one line with a help, and nothing runs.
#[test]
fn port_in_use_takes_one_line() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound").to_string();
    let network = folder.write("network.weft", &NETWORK.replace("127.0.0.1:0", &address));
    let printed = output(weft(&folder).args(["run", "--admin", "127.0.0.1:0"]).arg(&network));
    let text = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert_eq!(printed.status.code(), Some(3), "{text}");
    assert!(text.contains(&address) && text.contains("help:"), "{text}");
}

/// The admin endpoint would be open to any process that reaches it, or to web pages through a name of their own.
#[test]
fn admin_endpoint_needs_token() {
    let folder = Folder::new();
    let network = folder.write("network.weft", NETWORK);
    let node = Node::start(&folder, &network, &[]);
    let get = |path: &str, host: &str, extra: &str| {
        let mut stream = TcpStream::connect(&node.admin).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{extra}\r\n")
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    assert!(get("/healthz", "localhost", "").starts_with("HTTP/1.1 200"));
    assert!(get("/metrics", "127.0.0.1:9901", "").contains("weft_version 1\n"));
    assert!(get("/v1/program", "localhost", "").starts_with("HTTP/1.1 401"));
    assert!(get("/v1/status", "localhost", "Authorization: Bearer 00\r\n").starts_with("HTTP/1.1 401"));
    assert!(get("/healthz", "attacker.example", "").starts_with("HTTP/1.1 421"));
    assert!(get("/v1/nothing", "localhost", "").starts_with("HTTP/1.1 404"));
    // Without a token the answer comes before the body, which is never sent here.
    let mut stream = TcpStream::connect(&node.admin).expect("it listens");
    let head = "POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"HTTP/1.1 401");
    let shown = output(weft(&folder).args(["status", "--program", "--admin", &node.admin]));
    assert!(String::from_utf8_lossy(&shown.stdout).contains("only_alice"));
}

/// Standard output must have only rows of sinks: the next program in a pipe reads them.
#[test]
fn stdout_has_only_sink_rows() {
    let folder = Folder::new();
    let rows = "CREATE ELEMENT tick ON rpc AS
  VAR n U64 MERGE SUM;
  SINK ticks (n U64) TO STDOUT;
  ON EVERY '10 ms' INSERT INTO ticks VALUES (n);
END;
";
    let network = format!("{rows}{}", NETWORK.replace("  only_alice;", "  only_alice -> tick;"));
    let network = folder.write("network.weft", &network);
    let mut command = weft(&folder);
    command.stdout(Stdio::piped());
    let mut node = Node::start_as(command, &network, &[]);
    let stdout = node.take_stdout();
    std::thread::sleep(Duration::from_millis(500));
    let (status, talk) = node.stop_and_hear();
    assert_eq!(status, Some(0), "{talk}");
    assert!(talk.contains("stopping: ") && talk.contains("stopped: "), "{talk}");
    let text = stdout.join().expect("no panic");
    let rows = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a row"));
    assert!(rows.filter(|row| row["sink"] == "tick.ticks").count() > 5, "{text}");
}

/// A missing server would make callers hang.
#[test]
fn dead_upstream_gives_unavailable() {
    let folder = Folder::new();
    let network = folder.write("network.weft", NETWORK);
    let node = Node::start(&folder, &network, &[]);
    let runtime = runtime();
    runtime.block_on(async {
        let target = format!("http://{}", node.listener);
        let mut client = shop::pb::cart_client::CartClient::connect(target).await.expect("it listens");
        let request = |user: &str| shop::pb::CartRequest { user: user.into(), ..Default::default() };
        let denied = client.add(request("mallory")).await.expect_err("mallory is denied");
        assert_eq!((denied.code(), denied.message()), (tonic::Code::PermissionDenied, "only alice"));
        let begun = Instant::now();
        let dead = client.add(request("alice")).await.expect_err("nobody serves alice");
        assert_eq!(dead.code(), tonic::Code::Unavailable, "{dead}");
        assert!(begun.elapsed() < Duration::from_secs(3));
    });
    // The client's connection ends with its runtime; otherwise the node would wait for its grace.
    drop(runtime);
    assert_eq!(node.stop(), Some(0));
}

/// A call that outlasts the grace must get an error; a requested stop is still no failure.
#[test]
fn call_over_grace_is_cut_and_counted() {
    let folder = Folder::new();
    let server = shop_server("cart-1");
    let network = folder.write("network.weft", &NETWORK.replace("127.0.0.1:1'", &format!("{server}'")));
    let node = Node::start(&folder, &network, &["--grace", "1"]);
    let target = format!("http://{}", node.listener);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let slow = runtime.spawn(async move {
        let mut client = shop::pb::cart_client::CartClient::connect(target).await.expect("it listens");
        // The shop takes this number of milliseconds.
        let request = shop::pb::CartRequest { user: "alice".into(), quantity: 10_000, ..Default::default() };
        client.get(request).await
    });
    std::thread::sleep(Duration::from_millis(500));
    let (status, talk) = node.stop_and_hear();
    assert_eq!(status, Some(0), "{talk}");
    assert!(talk.contains("stopping: 1 call under way"), "{talk}");
    assert!(talk.contains("1 call was cut after 1 s, with UNAVAILABLE"), "{talk}");
    let cut = runtime.block_on(slow).expect("no panic").expect_err("it was cut");
    assert_eq!(cut.code(), tonic::Code::Unavailable, "{cut}");
}

/// An idle node would take too much memory; `weft bench memory` measures it with clients.
#[test]
fn idle_memory_stays_small() {
    let folder = Folder::new();
    let server = shop_server("cart-1");
    let network = folder.write("network.weft", &NETWORK.replace("127.0.0.1:1'", &format!("{server}'")));
    let node = Node::start(&folder, &network, &[]);
    let idle = node.resident_bytes();
    // The budget is for a release build: an unoptimised one has several times the code.
    let limit = if cfg!(debug_assertions) { 80 << 20 } else { 20 << 20 };
    assert!(idle <= limit, "an idle node has {idle} bytes");
}

/// Closing its terminal would cut a node's calls, or end a node that was meant to go on.
#[test]
fn closed_terminal_ends_node_cleanly() {
    if is_ignored(1) {
        return eprintln!("skipped: the tests ignore SIGHUP");
    }
    let folder = Folder::new();
    let network = folder.write("shop.weft", NETWORK);
    let talk = folder.0.join("talk");
    // The node's own terminal, which closes when the command at its other end is killed.
    let mut terminal = std::process::Command::new("script");
    let inside = format!(
        "exec {} run {} --admin 127.0.0.1:0 --table never 2> {}",
        env!("CARGO_BIN_EXE_weft"),
        network.display(),
        talk.display()
    );
    terminal.args(["-q", "-e", "-c", &inside, "/dev/null"]).env("XDG_RUNTIME_DIR", &folder.0);
    let started = terminal.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(mut terminal) = started else { return eprintln!("skipped: `script` is not here") };
    let log_has = |mark: &str| std::fs::read_to_string(&talk).unwrap_or_default().contains(mark);
    wait_until("the node starts", || log_has("admin http://"));
    terminal.kill().expect("it is ours");
    terminal.wait().expect("it is ours");
    wait_until("the node has ended", || log_has("stopped: 0 calls begun"));
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_weft")]);
    command.env("XDG_RUNTIME_DIR", &folder.0).env("NO_COLOR", "1").stdin(Stdio::null());
    let node = Node::start_as(command, &network, &[]);
    node.signal("HUP");
    assert_eq!(
        weft(&folder).args(["status", "--admin", &node.admin]).output().expect("it runs").status.code(),
        Some(0)
    );
    assert_eq!(node.stop(), Some(0));
}

/// Waits for another process.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// With a service manager, SIGHUP reloads the file. A wrong file would end the running program, or an old file would
/// undo a newer change.
#[test]
fn sighup_without_terminal_applies() {
    if is_ignored(1) {
        return eprintln!("skipped: the tests ignore SIGHUP");
    }
    let folder = Folder::new();
    let network = folder.write("shop.weft", NETWORK);
    let mut command = std::process::Command::new("setsid");
    command.arg(env!("CARGO_BIN_EXE_weft"));
    command.env("XDG_RUNTIME_DIR", &folder.0).env("USER", "ann").stdin(Stdio::null());
    let node = Node::start_as(command, &network, &["--log", "json"]);
    let version = || {
        let done = output(weft(&folder).args(["status", "-o", "json", "--admin", &node.admin]));
        let status: serde_json::Value = serde_json::from_slice(&done.stdout).expect("one JSON object");
        status["version"].as_u64()
    };
    folder.write("shop.weft", &NETWORK.replace("'alice'", "'bob'"));
    node.signal("HUP");
    wait_until("the file is applied", || version() == Some(2));
    folder.write("shop.weft", &NETWORK.replace("'alice'", "alice"));
    node.signal("HUP");
    std::thread::sleep(Duration::from_millis(500));
    let other = folder.write("other.weft", &NETWORK.replace("'alice'", "'carol'"));
    let applied =
        output(weft(&folder).env("USER", "eve\nroot").args(["apply", "--admin", &node.admin]).arg(&other));
    assert_eq!(applied.status.code(), Some(0), "{}", String::from_utf8_lossy(&applied.stderr));
    folder.write("shop.weft", NETWORK);
    node.signal("HUP");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(version(), Some(3), "what was applied since stays");
    let (status, talk) = node.stop_and_hear();
    assert_eq!(status, Some(0));
    let events: Vec<serde_json::Value> =
        talk.lines().map(|line| serde_json::from_str(line).expect("each line is an object")).collect();
    let of = |event: &str| {
        let is_it = |printed: &&serde_json::Value| printed["event"] == event;
        events
            .iter()
            .filter(is_it)
            .map(|printed| (printed["by"].as_str(), printed["version"].as_u64()))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("apply"), [(Some("SIGHUP"), Some(2)), (Some("eve\nroot"), Some(3))], "{talk}");
    assert_eq!(of("refuse"), [(Some("SIGHUP"), Some(2)), (Some("SIGHUP"), None)], "{talk}");
    let changed = events.iter().find(|printed| printed["event"] == "apply").expect("there are two");
    assert_eq!(changed["changes"][0]["what"], "element only_alice", "{talk}");
}

/// A service that starts later would prevent a node's start, and every change.
#[test]
fn unresolved_name_is_down_endpoint() {
    let folder = Folder::new();
    // RFC 6761 section 6.4: no name below `invalid` has an address.
    let text = NETWORK.replace("'127.0.0.1:1'", "'localhost:1', 'cart.invalid:1' WEIGHT 2");
    assert!(text.contains("cart.invalid"));
    let network = folder.write("shop.weft", &text);
    let node = Node::start(&folder, &network, &[]);
    let run = |args: &[&str]| {
        let done = output(weft(&folder).args(args).args(["--admin", &node.admin]));
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let status: serde_json::Value =
        serde_json::from_str(&run(&["status", "-o", "json"])).expect("one object");
    let endpoints = status["endpoints"].as_array().expect("two");
    assert!(endpoints[0]["addresses"][0].as_str().is_some_and(|address| address.ends_with(":1")), "{status}");
    assert!(endpoints[1]["down"].is_string() && endpoints[1]["addresses"].is_null(), "{status}");
    assert!(run(&["status"]).contains("cart.invalid:1 of cart is down: "));
    let file = network.display().to_string();
    for args in [&["apply", "--dry-run", &file][..], &["apply", &file]] {
        let printed = run(args);
        assert!(printed.contains("name cart.invalid:1 has no address: "), "{printed}");
        assert!(printed.contains("name localhost:1 is ") && printed.contains(", as before"), "{printed}");
    }
    let (status, talk) = node.stop_and_hear();
    assert!(status == Some(0) && talk.contains("its endpoint is down"), "{talk}");
}

/// An operator could not see whether an option is set.
#[test]
fn status_lists_options() {
    let folder = Folder::new();
    let text = NETWORK.replace("'127.0.0.1:0';", "'127.0.0.1:0' WITH (message_size_max = '8 MiB');");
    let text = text.replace("'127.0.0.1:1';", "'127.0.0.1:1' WITH (backoff_max = '9 s');");
    let node = Node::start(&folder, &folder.write("shop.weft", &text), &[]);
    let printed = output(weft(&folder).args(["status", "--admin", &node.admin]));
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(
        printed.contains("   message_size_max 8 MiB\n")
            && printed.contains("\ncluster cart   backoff_max 9 s\n"),
        "{printed}"
    );
    let printed = output(weft(&folder).args(["status", "-o", "json", "--admin", &node.admin]));
    let status: serde_json::Value = serde_json::from_slice(&printed.stdout).expect("one object");
    let options = status["listeners"][0]["options"].as_array().expect("all of them");
    assert_eq!(options.len(), weft_core::options::LISTENER_OPTIONS.len());
    assert_eq!(
        status["clusters"][0]["options"].as_array().map(Vec::len),
        Some(weft_core::options::CLUSTER_OPTIONS.len())
    );
}

/// The page would list a wrong option, default or range.
#[test]
fn docs_page_has_each_option() {
    let page = include_str!("../../../../docs/src/reference/program.md");
    let all = weft_core::options::LISTENER_OPTIONS.iter().chain(weft_core::options::CLUSTER_OPTIONS);
    let missing: Vec<String> =
        all.map(|def| def.page_row()).filter(|row| !page.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "docs/src/reference/program.md lacks:\n{}", missing.join("\n"));
}

/// A balancer that has not checked the node's health yet would send clients to a closed listener.
#[test]
fn drain_delay_accepts_clients() {
    let folder = Folder::new();
    let text = NETWORK.replace("'127.0.0.1:0';", "'127.0.0.1:0' WITH (drain_delay = '2 s');");
    let node = Node::start(&folder, &folder.write("shop.weft", &text), &[]);
    let begun = Instant::now();
    node.signal("TERM");
    let health = || {
        let Ok(mut stream) = TcpStream::connect(&node.admin) else { return String::new() };
        let asked = write!(stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        let _ = asked.and_then(|()| stream.read_to_string(&mut answer).map(drop));
        answer
    };
    wait_until("the node says that it stops", || health().starts_with("HTTP/1.1 503"));
    assert!(TcpStream::connect(&node.listener).is_ok(), "it is still taken");
    let (status, talk) = node.await_end();
    assert!(status == Some(0) && talk.contains("stopped: "), "{talk}");
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
}
