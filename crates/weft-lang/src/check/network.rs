//! Checks listeners, clusters, routes, ports and groups of them.

use crate::check::settings::{read_settings, settings};
use weft_core::limits::{GROUP_MEMBERS_MAX, GROUP_WEIGHTS_MAX};
use weft_core::marks::Mark;
use weft_core::methods::{METHOD_PATTERNS_MAX, MethodSet};
use weft_core::options::{CLUSTER_OPTIONS, ENDPOINT_WEIGHT_MAX, LISTENER_OPTIONS, OptionDef};
use weft_core::{Type, Value};

use super::expr::Environment;
use super::scope::Scope;
use super::{Cx, empty_element};
use crate::ast::{self, Ident};
use crate::check::suggest::with_nearest;
use crate::check::tree::hash_or_zero;
use crate::check::view::View;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    Address, Cluster, CompareOp, Expr, ExprKind, Group, GroupChoice, GroupKey, Listener, Port, PortKind,
    Route, Setting, StmtKind,
};
use crate::nearest::nearest;
use crate::source::Span;
use crate::types;

/// The options of a port, with their types. Each kind of port has some of them.
pub const PORT_OPTIONS: &[(&str, Type)] = &[
    // The MAC address in tables FILLED BY PORTS, instead of the device's own.
    ("mac", Type::Mac),
    // The MTU in tables FILLED BY PORTS, instead of the device's own.
    ("mtu", Type::Uint(16)),
    // The network namespace of the device.
    ("namespace", Type::Text(None)),
    // The other end of a veth pair.
    ("peer", Type::Text(None)),
    // The peer's address with prefix length: '10.0.0.1/24'.
    ("peer_address", Type::Text(None)),
    // The peer's network namespace.
    ("peer_namespace", Type::Text(None)),
    // The number of sockets that share the device's frames.
    ("queues", Type::Int(64)),
    // The replay speed of a capture: 'recorded' or 'full'.
    ("speed", Type::Text(None)),
    // The capture is written.
    ("write", Type::Bool),
    // The device's own memory holds the frames (zero-copy).
    ("zero_copy", Type::Bool),
];

/// The port kinds: word, kind, example of the device, and options.
const PORT_KINDS: &[(&str, PortKind, &str, &[&str])] = &[
    ("packet", PortKind::Packet, "'eth0'", &["mac", "mtu", "namespace", "queues"]),
    ("xdp", PortKind::Xdp, "'eth0'", &["mac", "mtu", "namespace", "queues", "zero_copy"]),
    ("veth", PortKind::Veth, "'to_a' WITH (peer = 'eth0', peer_namespace = 'a')", VETH_OPTIONS),
    ("tun", PortKind::Tun, "'tun0'", &["mtu", "namespace", "queues"]),
    ("tap", PortKind::Tap, "'tap0'", &["mac", "mtu", "namespace", "queues"]),
    ("pcap", PortKind::Pcap, "'capture.pcap'", &["mac", "mtu", "speed", "write"]),
    ("memory", PortKind::Memory, "", &["mac", "mtu"]),
];

const VETH_OPTIONS: &[&str] =
    &["mac", "mtu", "namespace", "peer", "peer_address", "peer_namespace", "queues"];

/// The port kinds, each with an example of the device.
pub(crate) fn port_kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    PORT_KINDS.iter().map(|(word, _, example, _)| (*word, *example))
}

/// The options of a port kind, with their types.
pub(crate) fn port_options(kind: &str) -> impl Iterator<Item = (&'static str, Type)> + use<> {
    let found = PORT_KINDS.iter().find(|(word, ..)| word.eq_ignore_ascii_case(kind));
    let names = found.map_or(&[][..], |(.., names)| names);
    PORT_OPTIONS.iter().filter(|(name, _)| names.contains(name)).copied()
}

/// Words of other systems for a network device.
const DEVICE_WORDS: [&str; 8] = ["eth", "ethernet", "device", "dev", "nic", "interface", "raw", "af_packet"];

/// The maximum length of a network device name (IFNAMSIZ without the terminating zero).
const DEVICE_BYTES_MAX: usize = 15;

/// Checks a port.
pub(super) fn port(cx: &mut Cx<'_>, ast: &ast::Port) -> Port {
    let word = ast.kind.name.to_ascii_lowercase();
    let device = ast.device.as_ref().map(|device| device.value.clone()).unwrap_or_default();
    let port = |kind, options| Port { name: ast.name.name.clone(), kind, device, options, span: ast.span };
    let Some((_, kind, example, _)) = PORT_KINDS.iter().find(|(known, ..)| *known == word) else {
        let words = PORT_KINDS.iter().map(|(known, ..)| *known);
        let message = format!("unknown port kind `{}`", ast.kind.name);
        let diagnostic = Diagnostic::error(code::UNKNOWN_OPTION, message)
            .at(ast.kind.span, "unknown")
            .with_note(format!("there are: {}", words.clone().collect::<Vec<_>>().join(", ")));
        let diagnostic = match DEVICE_WORDS.contains(&word.as_str()) {
            true => diagnostic
                .with_help("write `packet` for an existing device")
                .with_fix(ast.kind.span, "packet"),
            false => with_nearest(diagnostic, &ast.kind, words),
        };
        cx.report(diagnostic);
        return port(PortKind::Memory, Vec::new());
    };
    check_device(cx, ast, *kind, example);
    let known: Vec<(&'static str, Type)> = port_options(&word).collect();
    let settings = settings(cx, &ast.options, &known, &format!("port on `{word}`"));
    if let Some(setting) = settings.iter().find(|setting| setting.name == "speed")
        && ![&b"recorded"[..], b"full"].iter().any(|speed| setting.value == Value::Bytes(speed.to_vec()))
    {
        let help = "write `speed = 'recorded'` or `speed = 'full'`";
        cx.fault(code::UNKNOWN_OPTION, "unknown speed of a capture", setting.span, "unknown", help);
    }
    if *kind == PortKind::Veth {
        check_peer(cx, ast, &settings, example);
    }
    let writes =
        settings.iter().find(|setting| setting.name == "write" && setting.value == Value::Bool(true));
    if let (Some(_), Some(speed)) = (writes, settings.iter().find(|setting| setting.name == "speed")) {
        let message = "`speed` does not apply to a capture that is written";
        let help = "remove `speed`, or `write`";
        cx.fault(code::OPTION_CONFLICT, message, speed.span, "applies to reading only", help);
    }
    port(*kind, settings)
}

/// Warns of devices with several ports, and of files that several ports write.
pub(super) fn report_shared_devices(cx: &mut Cx<'_>, ports: &[Port]) {
    for (at, port) in ports.iter().enumerate() {
        let Some(place) = place_of(port) else { continue };
        let Some(first) = ports[..at].iter().find(|other| place_of(other) == Some(place)) else { continue };
        let message = format!("ports `{}` and `{}` both use '{}'", first.name, port.name, port.device);
        let what = match port.kind {
            PortKind::Pcap => "each overwrites the other's file",
            PortKind::Packet | PortKind::Veth => "each receives every packet of the device",
            _ => "each packet arrives at only one of the ports",
        };
        let diagnostic = Diagnostic::warning(code::DEVICE_SHARED, message)
            .at(port.span, what)
            .with_label(first.span, "the first")
            .with_help(match port.kind {
                PortKind::Pcap => "use another file, or send to one port from all chains",
                _ => "use one port: each chain names it in `ON PORT` and selects frames with `WHEN`",
            });
        cx.report(diagnostic);
    }
}

/// The device of a port with its namespace, or the file that it writes: exclusive to one port.
fn place_of(port: &Port) -> Option<(bool, &str, Option<&Value>)> {
    let is_file = match port.kind {
        PortKind::Memory => return None,
        PortKind::Pcap if !writes_capture(port) => return None,
        kind => kind == PortKind::Pcap,
    };
    let namespace = port.options.iter().find(|option| option.name == "namespace");
    Some((is_file, &port.device, namespace.map(|option| &option.value)))
}

/// Checks a group; None if its members are unknown.
pub(super) fn group(cx: &mut Cx<'_>, ports: &[Port], ast: &ast::Group) -> Option<Group> {
    let name = &ast.name;
    if let Some(port) = ports.iter().find(|port| port.name == name.name) {
        let message = format!("`{}` names both a port and a group", name.name);
        let diagnostic = Diagnostic::error(code::DUPLICATE_NAME, message)
            .at(name.span, "the group")
            .with_label(port.span, "the port")
            .with_help("rename one: elements address both by name");
        cx.report(diagnostic);
    }
    let (choice, key) = match &ast.choice {
        ast::GroupChoice::All(_) => (GroupChoice::All, None),
        ast::GroupChoice::Failover(_) => (GroupChoice::First, None),
        ast::GroupChoice::Select(by) if is_flow(by) => (GroupChoice::Flow, None),
        ast::GroupChoice::Select(by) => (GroupChoice::Key, Some(group_key(cx, &name.name, by)?)),
    };
    let mut members = Some(Vec::new());
    for (at, (port, weight)) in ast.members.iter().enumerate() {
        if let Some((first, _)) = ast.members[..at].iter().find(|(first, _)| first.name == port.name) {
            cx.report_duplicate("port", port, first.span);
            continue;
        }
        let found = find(cx, port, ports, |port| &port.name, "port", "ON packet 'eth0'");
        let weight = weight.as_ref().map_or(Some(1), |weight| member_weight(cx, weight, choice));
        members = members.zip(found).zip(weight).map(|((mut members, port), weight)| {
            members.push((port, weight));
            members
        });
    }
    let members: Vec<(usize, u16)> = members?;
    check_members(cx, ports, ast, &members);
    Some(Group { name: name.name.clone(), choice, key, members, span: ast.span })
}

fn is_flow(by: &ast::Expr) -> bool {
    matches!(&by.kind, ast::ExprKind::Call { function, args, star: None }
        if function.name.eq_ignore_ascii_case("flow") && args.is_empty())
}

/// Checks `SELECT BY e`: a generated element marks the frame with a hash of the expression, or 0 if it has no value.
fn group_key(cx: &mut Cx<'_>, name: &str, by: &ast::Expr) -> Option<GroupKey> {
    let element = super::chain::standalone::standalone_frame_element(cx, name, by.span, |scope| {
        let value = scope.expr(by, None)?;
        let is_same_again = scope.rows.is_empty() && *scope.n_rand == 0;
        if !is_same_again {
            let message = "a group selects by the contents of frames only";
            return Diagnostic::error(code::NOT_CONSTANT, message)
                .at(by.span, "may differ for the same frame")
                .with_help(
                    "select by fields: `SELECT BY ip.src`; to choose a port by name, use REDIRECT TO in an element",
                ).refuse(scope.cx);
        }
        Some(StmtKind::Mark { fields: vec![(Mark::Class, hash_or_zero(value))] })
    })?;
    Some(GroupKey { text: cx.sources.slice(by.span).to_owned(), element: Box::new(element) })
}

/// Checks the weight of a port in a group.
fn member_weight(cx: &mut Cx<'_>, ast: &ast::Expr, choice: GroupChoice) -> Option<u16> {
    if !matches!(choice, GroupChoice::Flow | GroupChoice::Key) {
        let message = "weights need SELECT BY flow()";
        let help = "remove the weight, or select by flow: `SELECT BY flow()`";
        return cx.refuse(code::OPTION_CONFLICT, message, ast.span, "has no meaning here", help);
    }
    let weight = match ast.kind {
        ast::ExprKind::Int(n) => u16::try_from(n).ok().filter(|n| (1..=GROUP_WEIGHTS_MAX).contains(n)),
        _ => None,
    };
    if weight.is_none() {
        let help = format!("write a weight from 1 to {GROUP_WEIGHTS_MAX}");
        cx.fault(code::BAD_LITERAL, "a weight must be a whole number", ast.span, "share of the flows", help);
    }
    weight
}

/// Checks the number, the weights and the kinds of a group's ports.
fn check_members(cx: &mut Cx<'_>, ports: &[Port], ast: &ast::Group, members: &[(usize, u16)]) {
    let weights: u32 = members.iter().map(|(_, weight)| u32::from(*weight)).sum();
    if members.len() > GROUP_MEMBERS_MAX || weights > u32::from(GROUP_WEIGHTS_MAX) {
        let message = format!("group `{}` is too large", ast.name.name);
        let diagnostic = Diagnostic::error(code::OVER_LIMIT, message)
            .at(ast.name.span, format!("{} ports with a total weight of {weights}", members.len()))
            .with_note(format!(
                "a group has at most {GROUP_MEMBERS_MAX} ports and a total weight of at most {GROUP_WEIGHTS_MAX}"
            ));
        cx.report(diagnostic);
    }
    for ((port, _), (name, _)) in members.iter().zip(&ast.members) {
        let reads = ports[*port].kind == PortKind::Pcap && !writes_capture(&ports[*port]);
        let is_tun = |port: usize| ports[port].kind == PortKind::Tun;
        let (message, label, help) = match () {
            () if reads => {
                let help = "open it for writing: `WITH (write = TRUE)`";
                (format!("port `{}` sends no frames", name.name), "a capture file opened for reading", help)
            }
            () if is_tun(*port) != is_tun(members[0].0) => {
                let help = "put the ports on `tun` into a separate group";
                (
                    "the ports of a group must use the same link framing".to_owned(),
                    "different from the other ports",
                    help,
                )
            }
            () => continue,
        };
        let diagnostic = Diagnostic::error(code::OPTION_CONFLICT, message)
            .at(name.span, label)
            .with_label(ports[*port].span, "declared here")
            .with_help(help);
        cx.report(diagnostic);
    }
}

/// Reports a port with a missing, superfluous or invalid device name.
fn check_device(cx: &mut Cx<'_>, ast: &ast::Port, kind: PortKind, example: &str) {
    let fault = match &ast.device {
        None if kind != PortKind::Memory => Some((
            ast.kind.span,
            format!("a port on `{}` must name its device", ast.kind.name),
            "name missing",
        )),
        Some(device) if kind == PortKind::Memory => {
            Some((device.span, "a `memory` port has no device".to_owned(), "unused name"))
        }
        Some(device) if !is_device(&device.value, kind) => {
            Some((device.span, format!("`{}` is not a valid device name", device.value), "invalid"))
        }
        _ => None,
    };
    let Some((span, message, label)) = fault else { return };
    let written = format!("{} {example}", ast.kind.name.to_ascii_lowercase());
    let help = format!("write `ON {}`", written.trim_end());
    cx.fault(code::BAD_ADDRESS, message, span, label, help);
}

/// Checks the peer of a veth port: it needs a name, different from this end's in the same namespace, and may have an
/// address.
fn check_peer(cx: &mut Cx<'_>, ast: &ast::Port, settings: &[Setting], example: &str) {
    let option = |name: &str| settings.iter().find(|setting| setting.name == name);
    let text = |setting: &Setting| match &setting.value {
        Value::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    let mut fault = |message: String, span, label: &str, help: String| {
        cx.report(Diagnostic::error(code::BAD_ADDRESS, message).at(span, label).with_help(help));
    };
    // Without its own name, a more basic error was already reported.
    let Some(own) = ast.device.as_ref().map(|device| device.value.as_str()) else { return };
    match option("peer").map(|peer| (text(peer), peer.span)) {
        None if ast.options.iter().any(|option| option.name.name == "peer") => {}
        None => {
            let message = "a port on `veth` must name its peer".to_owned();
            fault(message, ast.kind.span, "peer missing", format!("write `ON veth {example}`"));
        }
        Some((peer, span)) if !is_device(&peer, PortKind::Veth) => {
            let help = format!("use a name of at most {DEVICE_BYTES_MAX} bytes: `peer = 'eth0'`");
            fault(format!("`{peer}` is not a valid device name"), span, "invalid", help);
        }
        Some((peer, span)) if peer == own && option("peer_namespace").is_none() => {
            let help =
                "choose another name, or put the peer into a namespace: `peer_namespace = 'a'`".to_owned();
            fault(format!("both ends are named `{peer}`"), span, "the name of this end", help);
        }
        Some(_) => {}
    }
    if let Some(address) = option("peer_address")
        && types::address_within(&text(address)).is_none()
    {
        let message = format!("`{}` is not an address with a prefix length", text(address));
        fault(message, address.span, "invalid", "write it like `peer_address = '10.0.0.1/24'`".to_owned());
    }
}

/// Whether a text is a possible device name, or a file name for `pcap`.
fn is_device(text: &str, kind: PortKind) -> bool {
    let is_file = kind == PortKind::Pcap;
    let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    let is_short = !text.is_empty() && text.len() <= DEVICE_BYTES_MAX;
    match is_file {
        true => !text.is_empty() && !text.contains('\0'),
        false => is_short && text.bytes().all(is_name) && text != "." && text != "..",
    }
}

/// Checks a listener.
pub(super) fn listener(cx: &mut Cx<'_>, ast: &ast::Listener) -> Listener {
    let protocol = ast.protocol.name.to_ascii_lowercase();
    let text = &ast.address.value;
    let address = match protocol.as_str() {
        "tcp" | "rpc" | "grpc" => address(text),
        "unix" => address(&format!("unix:{}", text.strip_prefix("unix:").unwrap_or(text))),
        other => {
            let message = match other {
                "udp" | "ws" | "websocket" | "http" | "quic" | "tls" => {
                    format!("a listener on `{other}` is not supported in this version")
                }
                _ => format!("unknown protocol `{}`", ast.protocol.name),
            };
            let help = "write `ON tcp '0.0.0.0:6000'` or `ON unix '/run/app.sock'`";
            cx.fault(code::LAYER_NOT_IN_VERSION, message, ast.protocol.span, "ignored", help);
            Some(Address::Tcp(text.clone()))
        }
    };
    let address = address.unwrap_or_else(|| bad_address(cx, &ast.address));
    let options = ranged_settings(cx, &ast.options, LISTENER_OPTIONS, "listener");
    Listener { name: ast.name.name.clone(), address, options, span: ast.span }
}

/// Checks a cluster.
pub(super) fn cluster(cx: &mut Cx<'_>, ast: &ast::Cluster) -> Cluster {
    let endpoints = ast
        .endpoints
        .iter()
        .map(|(endpoint, _)| address(&endpoint.value).unwrap_or_else(|| bad_address(cx, endpoint)))
        .collect();
    let weights = ast.endpoints.iter().map(|(_, weight)| endpoint_weight(cx, weight.as_ref())).collect();
    let balance = ast.balance.map_or(ast::Balance::RoundRobin, |clause| clause.balance);
    let options = ranged_settings(cx, &ast.options, CLUSTER_OPTIONS, "cluster");
    let option = |name: &str| options.iter().find(|setting| setting.name == name);
    if let (Some(base), Some(max)) = (option("backoff_base"), option("backoff_max"))
        && let (Value::Int(least), Value::Int(most)) = (&base.value, &max.value)
        && least > most
    {
        let diagnostic =
            Diagnostic::error(code::OPTION_CONFLICT, "`backoff_base` is longer than `backoff_max`")
                .at(base.span, "duration of the first ejection")
                .with_label(max.span, "the longest")
                .with_help("make `backoff_max` at least as long as `backoff_base`");
        cx.report(diagnostic);
    }
    Cluster { name: ast.name.name.clone(), endpoints, weights, balance, options, span: ast.span }
}

/// The weight of an endpoint; 1 if it is missing or invalid.
fn endpoint_weight(cx: &mut Cx<'_>, ast: Option<&ast::Expr>) -> u32 {
    let Some(ast) = ast else { return 1 };
    let written = if let ast::ExprKind::Int(n) = ast.kind { u32::try_from(n).ok() } else { None };
    let weight = written.filter(|weight| (1..=ENDPOINT_WEIGHT_MAX).contains(weight));
    if weight.is_none() {
        let diagnostic = Diagnostic::error(code::BAD_LITERAL, "a weight must be a whole number")
            .at(ast.span, "share of the calls")
            .with_help(format!(
                "write a weight from 1 to {ENDPOINT_WEIGHT_MAX}; remove an endpoint that should get no calls"
            ));
        cx.report(diagnostic);
    }
    weight.unwrap_or(1)
}

/// Returns the options of a listener or a cluster that are in range. Reports the others.
fn ranged_settings(
    cx: &mut Cx<'_>,
    options: &[ast::Assign],
    defs: &'static [OptionDef],
    kind: &str,
) -> Vec<Setting> {
    let known: Vec<(&'static str, Type)> = defs.iter().map(|def| (def.name, def.ty)).collect();
    let mut settings = read_settings(cx, options, &known, kind);
    settings.retain(|setting| {
        let def = defs
            .iter()
            .find(|def| def.name == setting.name)
            .expect("each setting was checked against its definition");
        let Value::Int(value) = setting.value else { return false };
        let nearest = value.clamp(def.min, def.max);
        if nearest != value {
            let message = format!("option `{}` is out of range", def.name);
            let [least, most] = [def.min, def.max].map(|value| def.text(Some(value)));
            let default = def.default.map(|value| format!("; the default is {}", def.text(Some(value))));
            let diagnostic = Diagnostic::error(code::OVER_LIMIT, message)
                .at(setting.span, "outside the limits")
                .with_note(format!("allowed: {least} to {most}{}", default.unwrap_or_default()))
                .with_help(format!("write `{} = {}`", def.name, def.literal(nearest)));
            cx.report(diagnostic);
        }
        nearest == value
    });
    settings
}

/// Reads `host:port`, `[v6]:port` or `unix:/path`.
pub fn address(text: &str) -> Option<Address> {
    if let Some(path) = text.strip_prefix("unix:") {
        // The kernel's limit of sun_path, including the terminating zero.
        let fits = !path.is_empty() && path.len() < 108 && !path.contains('\0');
        return fits.then(|| Address::Unix(path.to_owned()));
    }
    let (host, port) = text.rsplit_once(':')?;
    let is_port =
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bracketed {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            let is_digits = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let is_v4 = host.parse::<std::net::Ipv4Addr>().is_ok();
            !host.is_empty() && host.len() <= 253 && host.bytes().all(is_name) && (is_v4 || !is_digits)
        }
    };
    (is_port && is_host).then(|| Address::Tcp(text.to_owned()))
}

/// Reports an invalid address, and returns a replacement so that checking continues.
fn bad_address(cx: &mut Cx<'_>, text: &ast::StrLit) -> Address {
    let message = format!("`{}` is not an address", text.value);
    let help = "write 'host:port', '[::1]:port' or 'unix:/path'";
    cx.fault(code::BAD_ADDRESS, message, text.span, "invalid address", help);
    Address::Tcp(text.value.clone())
}

/// Finds a listener or cluster by name; reports an unknown name.
pub(super) fn find<T>(
    cx: &mut Cx<'_>,
    name: &Ident,
    all: &[T],
    name_of: impl Fn(&T) -> &str,
    kind: &str,
    example: &str,
) -> Option<usize> {
    let found = all.iter().position(|known| name_of(known) == name.name);
    if found.is_none() {
        let names: Vec<&str> = all.iter().map(name_of).collect();
        let mut diagnostic =
            Diagnostic::error(code::NOT_IN_NETWORK, format!("unknown {kind} `{}`", name.name))
                .at(name.span, "unknown");
        let near = nearest(&name.name, names.iter().copied());
        diagnostic = match near {
            Some(_) => with_nearest(diagnostic, name, names),
            None => diagnostic.with_help(format!(
                "declare it: `CREATE {} {} {example};`",
                kind.to_uppercase(),
                name.name
            )),
        };
        cx.report_missing(diagnostic);
    }
    found
}

/// Finds a listener by name.
pub(super) fn find_listener(cx: &mut Cx<'_>, name: &Ident, all: &[Listener]) -> Option<usize> {
    find(cx, name, all, |listener| &listener.name, "listener", "ON tcp '0.0.0.0:6000'")
}

/// Finds a cluster by name.
pub(super) fn find_cluster(cx: &mut Cx<'_>, name: &Ident, all: &[Cluster]) -> Option<usize> {
    find(cx, name, all, |cluster| &cluster.name, "cluster", "TO '127.0.0.1:6001'")
}

/// Checks a route.
pub(super) fn route(
    cx: &mut Cx<'_>,
    listeners: &[Listener],
    clusters: &[Cluster],
    ast: &ast::Route,
) -> Option<Route> {
    let listener = find_listener(cx, &ast.listener, listeners);
    let cluster = find_cluster(cx, &ast.cluster, clusters);
    let method_set = method_set(cx, ast.method.as_ref());
    let element = empty_element();
    let mut n_rand = 0;
    let when = match &ast.when {
        Some(when) => {
            let mut scope = Scope::new(cx, &element, &[], View::Route, &mut n_rand);
            Some(scope.condition(when)?)
        }
        None => None,
    };
    Some(Route {
        name: ast.name.name.clone(),
        listener: listener?,
        method_set: method_set?,
        when,
        cluster: cluster?,
        span: ast.span,
    })
}

/// Returns the methods of a METHOD clause. Reports patterns that match no method of the schemas, and a clause that
/// matches none.
pub(super) fn method_set(cx: &mut Cx<'_>, clause: Option<&ast::MethodClause>) -> Option<MethodSet> {
    let Some(clause) = clause else { return Some(MethodSet::all()) };
    if clause.patterns.len() > METHOD_PATTERNS_MAX {
        let message = format!("a METHOD has at most {METHOD_PATTERNS_MAX} patterns");
        return Diagnostic::error(code::OVER_LIMIT, message)
            .at(clause.span, format!("{} patterns", clause.patterns.len()))
            .with_help("replace names with `*` patterns, or split the chain")
            .refuse(cx);
    }
    let all: Vec<String> = cx.schema.methods().map(|(path, _)| path).collect();
    let is_any = |set: &MethodSet| all.is_empty() || all.iter().any(|path| set.contains(path.as_bytes()));
    let mut is_sound = true;
    for pattern in &clause.patterns {
        if !is_any(&MethodSet::of([&*pattern.value])) {
            report_no_method(cx, pattern, &all);
            is_sound = false;
        }
    }
    let set = clause.methods();
    if is_sound && !is_any(&set) {
        let diagnostic = Diagnostic::error(code::NO_METHOD, format!("METHOD {set} matches no method"))
            .at(clause.span, "excludes every declared method");
        cx.report_missing(diagnostic);
        is_sound = false;
    }
    is_sound.then_some(set)
}

/// Reports a pattern that matches no method, with the nearest one.
fn report_no_method(cx: &mut Cx<'_>, pattern: &ast::StrLit, all: &[String]) {
    let shown: Vec<&str> = all.iter().take(8).map(String::as_str).collect();
    let more = if all.len() > shown.len() { ", ..." } else { "" };
    let diagnostic = Diagnostic::error(code::NO_METHOD, format!("`{}` matches no method", pattern.value))
        .at(pattern.span, "no declared method has this name")
        .with_note(format!("there are: {}{more}", shown.join(", ")));
    let text = pattern.value.trim_start_matches('/');
    let diagnostic = match nearest(text, all.iter().map(String::as_str)) {
        Some(near) => {
            diagnostic.with_help(format!("write '{near}'")).with_fix(pattern.span, format!("'{near}'"))
        }
        None => diagnostic
            .with_help("write 'package.Service/*' for all methods of a service, or '*' for all methods"),
    };
    cx.report_missing(diagnostic);
}

/// Whether two sets have a known method in common; without known methods, whether they overlap.
pub(super) fn overlap(cx: &Cx<'_>, a: &MethodSet, b: &MethodSet) -> bool {
    let mut methods = cx.schema.methods().map(|(path, _)| path).peekable();
    if methods.peek().is_some() {
        return methods.any(|path| a.contains(path.as_bytes()) && b.contains(path.as_bytes()));
    }
    a.meets(b)
}

/// Reports routes of one listener that match the same call.
///
/// A route with WHEN comes before those without. Two routes with WHEN must compare the same value with different
/// constants; two routes to the same cluster never conflict.
pub(super) fn check_routes(cx: &mut Cx<'_>, routes: &[Route], items: &[&ast::Route]) {
    let spans: Vec<(Span, &Route)> = items
        .iter()
        .filter_map(|item| {
            routes.iter().find(|route| route.span == item.span).map(|route| (item.name.span, route))
        })
        .collect();
    for (index, (span, route)) in spans.iter().enumerate() {
        for (first_span, first) in &spans[..index] {
            let contradict = first.listener == route.listener
                && first.cluster != route.cluster
                && first.when.is_some() == route.when.is_some()
                && overlap(cx, &first.method_set, &route.method_set)
                && !are_exclusive(first.when.as_ref(), route.when.as_ref());
            if !contradict {
                continue;
            }
            let message = format!("routes `{}` and `{}` match the same calls", first.name, route.name);
            let help = match route.when {
                Some(_) => "make their conditions disjoint: compare the same header with different values",
                None => "narrow the METHOD of one, or add a WHEN to one, which then takes precedence",
            };
            let diagnostic = Diagnostic::error(code::OVERLAP, message)
                .at(*span, "the second")
                .with_label(*first_span, "the first")
                .with_help(help);
            cx.report(diagnostic);
        }
    }
}

/// Whether two conditions compare the same value with different constants, so that both are never true.
fn are_exclusive(a: Option<&Expr>, b: Option<&Expr>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return false };
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    equalities(a, &mut of_a);
    equalities(b, &mut of_b);
    of_a.iter()
        .any(|(thing, value)| of_b.iter().any(|(other, different)| thing == other && value != different))
}

/// The `value = constant` tests in a condition.
fn equalities<'e>(expr: &'e Expr, found: &mut Vec<(&'e ExprKind, &'e Value)>) {
    match &expr.kind {
        ExprKind::And(left, right) => {
            equalities(left, found);
            equalities(right, found);
        }
        ExprKind::Compare { op: CompareOp::Eq, left, right } => match (&left.kind, &right.kind) {
            (thing, ExprKind::Const(value)) | (ExprKind::Const(value), thing) => found.push((thing, value)),
            _ => {}
        },
        _ => {}
    }
}

/// Whether a port is a capture file that is open for writing.
pub(super) fn writes_capture(port: &Port) -> bool {
    port.options.iter().any(|option| option.name == "write" && option.value == Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_in_each_form() {
        // An invalid address must be rejected by the check, not when the program starts.
        assert_eq!(address("127.0.0.1:80"), Some(Address::Tcp("127.0.0.1:80".to_owned())));
        assert_eq!(address("unix:/run/a"), Some(Address::Unix("/run/a".to_owned())));
        assert!(address("[::1]:80").is_some() && address("cart.local:1").is_some());
        for wrong in ["", "host", "host:", "host:99999", "1.2.3:4", "[x]:1", "unix:", ":80", "a b:1"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
