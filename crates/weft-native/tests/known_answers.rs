//! Test vectors of standards, and output of other implementations.

mod support;

use support::{CallResult, call, call_at, decl, of, plain, unhex, with_key};
use weft_core::native::{Arg, Native};
use weft_core::{Interval, Time, Value};

fn fox() -> Vec<u8> {
    b"The quick brown fox jumps over the lazy dog. ".repeat(20)
}

#[test]
fn foreign_compression_is_decompressed() {
    // Peers compress with other tools, whose headers must not stop us.
    let cases: [(Native, &str); 6] = [
        // gzip -9: with the file's name and time.
        (
            Native::Gunzip,
            "1f8b08089876016b0203666f78000bc94855282ccd4cce56482aca2fcf5348cbaf50c82acd2d2856c82f4b2d5228014ae\
            72456552aa4
             e4a7eb29848c2a1e553caa98da8a01e64a66b084030000",
        ),
        // zstd -19, with its checksum, and zstd from a pipe, without a length.
        (
            Native::Unzstd,
            "28b52ffd648402b50100d40254686520717569636b2062726f776e20666f78206a756d7073206f76657220746865206c6\
            17a7920646f
             672e200100a50a2b55065913fa85",
        ),
        (
            Native::Unzstd,
            "28b52ffd0058b50100d40254686520717569636b2062726f776e20666f78206a756d7073206f76657220746865206c617\
            a7920646f67
             2e200100a50a2b5506",
        ),
        // lz4 -9 -BD, and lz4 --content-size.
        (
            Native::Unlz4,
            "04224d186440a73b000000ff1e54686520717569636b2062726f776e20666f78206a756d7073206f76657220746865206\
            c617a792064
             6f672e202d00ffffff4250646f672e20000000009f827c81",
        ),
        (
            Native::Unlz4,
            "04224d186c408403000000000000c63b000000ff1e54686520717569636b2062726f776e20666f78206a756d7073206f7\
            66572207468
             65206c617a7920646f672e202d00ffffff4250646f672e20000000009f827c81",
        ),
        // RFC 1952 section 2.2: members one after the other.
        (
            Native::Gunzip,
            "1f8b08000000000000ff03000000000000000000
             1f8b08089876016b0203666f78000bc94855282ccd4cce56482aca2fcf5348cbaf50c82acd2d2856c82f4b2d5228014ae\
             72456552aa4
             e4a7eb29848c2a1e553caa98da8a01e64a66b084030000",
        ),
    ];
    for (native, digits) in cases {
        assert_eq!(of(native, &unhex(digits)), CallResult::Bytes(fox()), "{native:?}");
    }
}

#[test]
fn base64_and_hex_match_rfc_4648() {
    // Section 10 of the RFC.
    let cases = [
        ("", "", ""),
        ("f", "Zg==", "66"),
        ("fo", "Zm8=", "666f"),
        ("foo", "Zm9v", "666f6f"),
        ("foob", "Zm9vYg==", "666f6f62"),
        ("fooba", "Zm9vYmE=", "666f6f6261"),
        ("foobar", "Zm9vYmFy", "666f6f626172"),
    ];
    for (text, base64, hex) in cases {
        assert_eq!(of(Native::Base64, text.as_bytes()), base64.into());
        assert_eq!(of(Native::Unbase64, base64.as_bytes()), text.into());
        assert_eq!(of(Native::Base64Url, text.as_bytes()), base64.trim_end_matches('=').into());
        assert_eq!(of(Native::Unbase64Url, base64.trim_end_matches('=').as_bytes()), text.into());
        assert_eq!(of(Native::Hex, text.as_bytes()), hex.into());
        assert_eq!(of(Native::Unhex, hex.to_uppercase().as_bytes()), text.into());
    }
    assert_eq!(of(Native::Base64Url, &[0xfb, 0xff]), "-_8".into());
    for wrong in ["Zg", "Zg=", "Z===", "Zh==", "Zm9v\n", "-_8="] {
        assert_eq!(of(Native::Unbase64, wrong.as_bytes()), CallResult::Failed, "{wrong}");
    }
    for wrong in ["6", "6g", "0x66", " 66"] {
        assert_eq!(of(Native::Unhex, wrong.as_bytes()), CallResult::Failed, "{wrong}");
    }
}

#[test]
fn xxh3_matches_reference_values() {
    // A hash that differed from others' would choose other servers for a key.
    for (text, hash) in
        [("", 0x2d06_8005_38d3_94c2_u64), ("a", 0xe6c6_32b6_1e96_4e1f), ("abc", 0x78af_5f94_892f_3950)]
    {
        assert_eq!(of(Native::Xxh3, text.as_bytes()), CallResult::Int(hash as i64), "{text}");
    }
}

#[test]
fn json_pointers_match_rfc_6901() {
    // Section 5 of the RFC.
    let json = r#"{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7,
      "m~n": 8}"#;
    let cases = [
        ("/foo", r#"["bar", "baz"]"#),
        ("/foo/0", "bar"),
        ("/", "0"),
        ("/a~1b", "1"),
        ("/c%d", "2"),
        ("/e^f", "3"),
        ("/g|h", "4"),
        (r"/i\j", "5"),
        ("/k\"l", "6"),
        ("/ ", "7"),
        ("/m~0n", "8"),
        ("", json),
    ];
    for (pointer, value) in cases {
        assert_eq!(get(json, pointer), value.into(), "{pointer}");
    }
    for pointer in ["/bar", "/foo/2", "/foo/-", "/foo/00", "/foo/x", "/foo/0/0", "/a/b"] {
        assert_eq!(get(json, pointer), CallResult::Null, "{pointer}");
    }
}

fn get(json: &str, pointer: &str) -> CallResult {
    call(&*plain(Native::JsonGet, &[pointer]), &[Arg::Bytes(json.as_bytes())])
}

fn set(json: &str, pointer: &str, value: Arg<'_>) -> CallResult {
    call(&*plain(Native::JsonSet, &[pointer]), &[Arg::Bytes(json.as_bytes()), value])
}

#[test]
fn json_values_come_as_text() {
    // A string with its quotes, or with an escape, would never equal the text it is compared with.
    let json = r#"{"s": "a\n\u00fc\ud83d\ude00", "n": -1.50e3, "t": true, "z": null, "o": {"x": 1}, "e": "", 
      "s2": "\ud800"}"#;
    assert_eq!(get(json, "/s"), "a\n\u{fc}\u{1f600}".into());
    assert_eq!(get(json, "/n"), "-1.50e3".into());
    assert_eq!(get(json, "/t"), "true".into());
    assert_eq!(get(json, "/z"), CallResult::Null);
    assert_eq!(get(json, "/o"), r#"{"x": 1}"#.into());
    assert_eq!(get(json, "/e"), "".into());
    assert_eq!(get(json, "/s2"), CallResult::Failed);
    // Of two members with the same name the last counts, as in most readers (RFC 8259 section 4).
    assert_eq!(get(r#"{"a": 1, "a": 2}"#, "/a"), "2".into());
    for wrong in ["", "{", r#"{"a": 1} x"#, r#"{"a": 01}"#, "{'a': 1}", r#"{"b": [1,], "a": 1}"#, "\u{feff}1"]
    {
        assert_eq!(get(wrong, "/a"), CallResult::Failed, "{wrong}");
    }
}

#[test]
fn json_set_changes_one_place() {
    // A rewritten number or escape could have another meaning to the application.
    let json = r#" {"a": {"b": 1.0, "c": []}, "big": 12345678901234567890123, "u": "\u00e9" } "#;
    let to = |from: &str, by: &str| CallResult::from(json.replace(from, by).as_str());
    assert_eq!(set(json, "/a/b", Arg::Int(-7)), to("1.0", "-7"));
    assert_eq!(set(json, "/a/b", Arg::Float(0.5)), to("1.0", "0.5"));
    assert_eq!(set(json, "/a/b", Arg::Bool(true)), to("1.0", "true"));
    assert_eq!(set(json, "/a/b", Arg::Bytes(b"say \"hi\"\n")), to("1.0", r#""say \"hi\"\n""#));
    assert_eq!(set(json, "/a/c/-", Arg::Int(1)), to("[]", "[1]"));
    assert_eq!(set(r#"{"l": [1]}"#, "/l/-", Arg::Int(2)), r#"{"l": [1,2]}"#.into());
    assert_eq!(set("{ }", "/a~1b", Arg::Int(1)), r#"{ "a/b":1}"#.into());
    assert_eq!(set(r#"{"a":1}"#, "/b", Arg::Int(2)), r#"{"a":1,"b":2}"#.into());
    assert_eq!(set("1", "", Arg::Bytes(b"x")), r#""x""#.into());
    for (json, pointer) in
        [("1", "/a"), (r#"{"a":1}"#, "/a/b"), (r#"{"a":[]}"#, "/a/0"), (r#"{"a":{}}"#, "/b/c"), ("{", "/a")]
    {
        assert_eq!(set(json, pointer, Arg::Int(1)), CallResult::Failed, "{json} {pointer}");
    }
    assert_eq!(set("{}", "/a", Arg::Float(f64::NAN)), CallResult::Failed);
}

#[test]
fn hmac_matches_rfc_4231() {
    // Test case 6.
    let hmac =
        with_key(&decl(Native::HmacSha256, &[], &[]), Some(&[0xaa; 131]), 0).expect("the key is long enough");
    let data = b"Test Using Larger Than Block-Size Key - Hash Key First";
    let expected = unhex("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    assert_eq!(call(&*hmac, &[Arg::Bytes(data)]), CallResult::Bytes(expected));
}

// ---- tokens ----------------------------------------------------------------------------------------------------

fn jwt(algorithm: &str, key: &[u8], more: &[(&str, Value)]) -> impl Fn(&str, i64) -> CallResult + use<> {
    let options = [&[("algorithm", Value::text(algorithm))], more].concat();
    let verify = with_key(&decl(Native::JwtVerify, &[], &options), Some(key), 0);
    let verify = verify.unwrap_or_else(|error| panic!("{algorithm}: {error}"));
    move |token, seconds| call_at(&*verify, &[Arg::Bytes(token.as_bytes())], Time(seconds * 1_000_000_000))
}

/// The key of RFC 7515 appendix A.1.
const RFC_HS256: &[u8] =
    b"base64url:AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow\n";
/// The public key of RFC 7515 appendix A.2, as a PEM file.
const RFC_RS256: &[u8] = include_bytes!("keys/rfc7515-rs256.pem");
/// That of appendix A.3.
const RFC_ES256: &[u8] = include_bytes!("keys/rfc7515-es256.pem");
const RFC_CLAIMS: &str = "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}";
const RFC_PAYLOAD: &str =
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";

#[test]
fn rfc_tokens_are_valid_until_expiry() {
    // RFC 7515 appendices A.1 to A.3; the first is the example of RFC 7519 section 3.1.
    let cases = [
        (
            "HS256",
            RFC_HS256,
            "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9",
            "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        ),
        (
            "RS256",
            RFC_RS256,
            "eyJhbGciOiJSUzI1NiJ9",
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGb\
            ds9uJdbF9CU\
             Ar7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9\
             383LcOLn6_d\
             O--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWyw\
             lVmtVrBp0ig\
             cN_IoypGlUPQGe77Rw",
        ),
        (
            "ES256",
            RFC_ES256,
            "eyJhbGciOiJFUzI1NiJ9",
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        ),
    ];
    for (algorithm, key, header, signature) in cases {
        let verify = jwt(algorithm, key, &[]);
        let token = format!("{header}.{RFC_PAYLOAD}.{signature}");
        assert_eq!(verify(&token, 1_300_819_379), RFC_CLAIMS.into(), "{algorithm}");
        assert_eq!(verify(&token, 1_300_819_380), CallResult::Null, "{algorithm}: it has expired");
        // Any change of a token must be detected.
        for at in (0..token.len()).step_by(7) {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("the token is ASCII");
            assert_eq!(verify(&changed, 0), CallResult::Null, "{algorithm}: {at}");
        }
        for wrong in ["", ".", "..", "a.b.c", header, &token[..token.len() - 1], &format!("{token}.")] {
            assert_eq!(verify(wrong, 0), CallResult::Null, "{algorithm}: {wrong}");
        }
    }
}

/// `{"iss":"weft","sub":"alice","aud":["shop","cart"],"nbf":1000,"exp":2000}`, signed by OpenSSL and Python.
const CLAIMS: &str = r#"{"iss":"weft","sub":"alice","aud":["shop","cart"],"nbf":1000,"exp":2000}"#;
const HS256: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJ3ZWZ0Iiwic3ViIjoiYWxpY2UiLCJhdWQiOlsic2hv\
    cCIsImNhcnQi\
    XSwibmJmIjoxMDAwLCJleHAiOjIwMDB9.yh2LnhKXtoFxgLmAnb__oj09RUWHO_eRzpS9GML3NfY";
const RS256: &str = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJ3ZWZ0Iiwic3ViIjoiYWxpY2UiLCJhdWQiOlsic2hv\
    cCIsImNhcnQi\
    XSwibmJmIjoxMDAwLCJleHAiOjIwMDB9.UmOine1_wVklRSZjahDwqyUnj2XHlOhYw3xGGfouvkomDpTQ7a4e5xprxvc5BFydn4R_TgAim\
    gMlHXE1Coz\
    MCQSgXCvu4PQNtKZVlsBP7kKV56kLSgzBeF8Bxej8ziF8Zkrr7ofjxHqc-oCc5LQvib3Le8Iq2R-bolzgilT4gAleDiQTLxykZq3D_AmMW\
    pIIe-YNx6T\
    -CeFQRH8bVepxBEFRbzlkAp_v9aRS6J28rVEuBGFUIqP6x0k5eZuOTzOslzng1vEpMFKXHnquuEj1CfALl1f8E42YVXwknZ-Y99XoMy_IH\
    aERsEEuUAc\
    cekpMkBpeJx7UmQhKi0ZfBfA6Nw";
const ES256: &str = "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJ3ZWZ0Iiwic3ViIjoiYWxpY2UiLCJhdWQiOlsic2hv\
    cCIsImNhcnQi\
    XSwibmJmIjoxMDAwLCJleHAiOjIwMDB9.1zNJctlRhKvUBVjosc4SXRIkxiMgnK-eHohj3836r1peYeZaIYWN-liI7TgMP2wmhwBGF8xv2\
    S4ZqzLCyc_d\
    nw";
const OPENSSL_RS256: &[u8] = include_bytes!("../../../tests/keys/rs256.pem");
const OPENSSL_ES256: &[u8] = include_bytes!("../../../tests/keys/es256.pem");

fn hs256_key() -> Vec<u8> {
    (0..32).collect()
}

#[test]
fn foreign_tokens_hold_in_their_time() {
    // A token is valid from `nbf` until before `exp` (RFC 7519 sections 4.1.4 and 4.1.5).
    let keys = [
        ("HS256", &hs256_key()[..], HS256),
        ("RS256", OPENSSL_RS256, RS256),
        ("ES256", OPENSSL_ES256, ES256),
    ];
    for (algorithm, key, token) in keys {
        let verify = jwt(algorithm, key, &[]);
        for (seconds, expected) in
            [(999, CallResult::Null), (1000, CLAIMS.into()), (1999, CLAIMS.into()), (2000, CallResult::Null)]
        {
            assert_eq!(verify(token, seconds), expected, "{algorithm} at {seconds}");
        }
    }
    let lenient = jwt("HS256", &hs256_key(), &[("leeway", Value::Int(Interval::from_secs(5).0))]);
    assert_eq!(lenient(HS256, 995), CLAIMS.into());
    assert_eq!(lenient(HS256, 2005), CallResult::Null);
}

#[test]
fn issuer_and_audience_are_checked() {
    // A token for another service, with a good signature, is the classic attack.
    for (option, value, is_valid) in [
        ("issuer", "weft", true),
        ("issuer", "other", false),
        ("audience", "cart", true),
        ("audience", "bank", false),
    ] {
        let verify = jwt("HS256", &hs256_key(), &[(option, Value::text(value))]);
        let expected = if is_valid { CLAIMS.into() } else { CallResult::Null };
        assert_eq!(verify(HS256, 1500), expected, "{option} {value}");
    }
    let dateless =
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJib2IifQ.EulAUCXTDlu2LDed1cFi_TQ-C1NB6a7Ro6W6Vt1NK4E";
    assert_eq!(jwt("HS256", &hs256_key(), &[])(dateless, 1500), r#"{"sub":"bob"}"#.into());
    assert_eq!(
        jwt("HS256", &hs256_key(), &[("audience", Value::text("shop"))])(dateless, 1500),
        CallResult::Null
    );
    // An `exp` that is no number.
    let odd = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJib2IiLCJleHAiOiIyMDAwIn0.N303t2QbleUqZqDE2RtVqP\
    FNOTOsAljez07X\
               9Z2v9RM";
    assert_eq!(jwt("HS256", &hs256_key(), &[])(odd, 1500), CallResult::Null);
}

#[test]
fn token_does_not_choose_algorithm() {
    // RFC 8725 sections 2.1 and 3.1: `none`, and a public key used as a secret.
    let none = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJldmUifQ.";
    let critical = "eyJhbGciOiJIUzI1NiIsImNyaXQiOlsieCJdLCJ4IjoxfQ.eyJzdWIiOiJldmUifQ.Kqzv1H87Hu2KJK4QRjBnCRIc\
    Lb481w5PiAK_\
                    10NDajQ";
    for (algorithm, key) in [("HS256", &hs256_key()[..]), ("RS256", OPENSSL_RS256), ("ES256", OPENSSL_ES256)]
    {
        let verify = jwt(algorithm, key, &[]);
        assert_eq!(verify(none, 0), CallResult::Null, "{algorithm}");
        assert_eq!(verify(critical, 0), CallResult::Null, "{algorithm}");
    }
    assert_eq!(jwt("RS256", OPENSSL_RS256, &[])(HS256, 1500), CallResult::Null);
    assert_eq!(jwt("ES256", OPENSSL_ES256, &[])(RS256, 1500), CallResult::Null);
}

#[test]
fn key_of_other_algorithm_is_refused() {
    // A key of the wrong kind would verify nothing, or anything.
    let refused = |algorithm: &str, key: Option<&[u8]>| {
        let decl = decl(Native::JwtVerify, &[], &[("algorithm", Value::text(algorithm))]);
        with_key(&decl, key, 0).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refused("RS256", Some(OPENSSL_ES256)).contains("not an RSA key"));
    assert!(refused("ES256", Some(OPENSSL_RS256)).contains("not a key on the curve P-256"));
    assert!(
        refused("RS256", Some(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"))
            .contains("PRIVATE KEY")
    );
    assert!(refused("RS256", Some(b"x")).contains("not a PEM file"));
    assert!(refused("HS256", Some(b"short")).contains("too short"));
    assert!(refused("HS256", Some(b"hex:zz")).contains("not in the form"));
    assert!(refused("HS256", None).contains("no key"));
    assert!(refused("none", Some(&hs256_key())).contains("algorithm"));
}

#[test]
fn network_keeps_prefix_bits() {
    // A limit per network would count clients of another one.
    let of = |address: &[u8], bits: i64| {
        call(&*plain(Native::Network, &[]), &[Arg::Bytes(address), Arg::Int(bits)])
    };
    for (bits, network) in [
        (24, [10, 1, 2, 0, 24]),
        (23, [10, 1, 2, 0, 23]),
        (22, [10, 1, 0, 0, 22]),
        (31, [10, 1, 2, 2, 31]),
        (0, [0, 0, 0, 0, 0]),
        (32, [10, 1, 2, 3, 32]),
        (64, [10, 1, 2, 3, 32]),
        (i64::MAX, [10, 1, 2, 3, 32]),
    ] {
        assert_eq!(of(&[10, 1, 2, 3], bits), CallResult::Bytes(network.to_vec()), "{bits}");
    }
    let mut long = vec![0xff; 8];
    long.resize(16, 0);
    long.push(64);
    assert_eq!(of(&[0xff; 16], 64), CallResult::Bytes(long));
    assert_eq!(of(&[10, 1, 2, 3], -1), CallResult::Failed);
}

#[test]
fn addresses_parse_with_and_without_port() {
    // A rule for a network would apply to addresses outside it.
    let of = |text: &str| call(&*plain(Native::Address, &[]), &[Arg::Bytes(text.as_bytes())]);
    for text in ["10.1.2.3", "10.1.2.3:65535", "::ffff:10.1.2.3", "[::ffff:a01:203]:1"] {
        assert_eq!(of(text), CallResult::Bytes(vec![10, 1, 2, 3]), "{text}");
    }
    let mut long = vec![0x20, 1, 0xd, 0xb8];
    long.resize(15, 0);
    long.push(1);
    for text in ["2001:db8::1", "[2001:db8::1]:80", "2001:DB8:0:0:0:0:0:1", "2001:db8::0.0.0.1"] {
        assert_eq!(of(text), CallResult::Bytes(long.clone()), "{text}");
    }
    for text in
        ["", "unix", "10.1.2", "10.1.2.3:", "10.1.2.3:65536", "010.1.2.3", "[::1]", "::1%eth0", "host:80"]
    {
        assert_eq!(of(text), CallResult::Null, "{text}");
    }
    assert_eq!(of(&"1".repeat(1 << 20)), CallResult::Null);
}

#[test]
fn domain_names_are_read_as_written() {
    // A rule for a name would not match an equal name in a resolver.
    let of = |labels: &[u8]| call(&*plain(Native::DnsName, &[]), &[Arg::Bytes(labels)]);
    let is = |text: &str| CallResult::Bytes(text.as_bytes().to_vec());
    assert_eq!(of(b"\x03WWW\x07example\x03cOm\0"), is("www.example.com"));
    assert_eq!(of(b"\0"), is(""));
    assert_eq!(of(b"\x04a.b\\\x03\0 \xff\0"), is("a\\.b\\\\.\\000\\032\\255"));
    for broken in [&b"\x04www"[..], b"", b"\x03www", b"\x03www\xc0\x0c", b"\0\0", b"\x40", &[1; 256]] {
        assert_eq!(of(broken), CallResult::Null, "{broken:?}");
    }
}

#[test]
fn multicast_macs_match_rfcs() {
    // A query would go to stations that do not listen.
    let of = |native: Native, ip: &[u8]| call(&*plain(native, &[]), &[Arg::Bytes(ip)]);
    assert_eq!(
        of(Native::GroupMac, &[239, 129, 2, 3]),
        CallResult::Bytes(vec![0x01, 0x00, 0x5e, 0x01, 0x02, 0x03])
    );
    assert_eq!(of(Native::GroupMac, &[10, 0, 0, 1]), CallResult::Null);
    // The example of RFC 4291 section 2.7.1.
    let host: core::net::Ipv6Addr = "4037::01:800:200e:8c6c".parse().expect("the text is an address");
    let group: core::net::Ipv6Addr = "ff02::1:ff0e:8c6c".parse().expect("the text is an address");
    assert_eq!(of(Native::SolicitedNode, &host.octets()), CallResult::Bytes(group.octets().to_vec()));
    assert_eq!(
        of(Native::GroupMac, &group.octets()),
        CallResult::Bytes(vec![0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c])
    );
    assert_eq!(of(Native::GroupMac, &host.octets()), CallResult::Null);
    assert_eq!(of(Native::SolicitedNode, &[10, 0, 0, 1]), CallResult::Null);
}
