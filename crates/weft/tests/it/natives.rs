//! Native functions with their keys, between a stock client and a stock server.

use crate::library::{Named, Test};
use crate::node::{Folder, output, runtime, weft};
use shop::pb::CartRequest;
use tonic::{Code, Request};

const FUNCTIONS: &str = "
CREATE FUNCTION seal (BYTES) RETURNS BYTES AS NATIVE 'aes_256_gcm_seal' WITH (key_file = 'KEY');
CREATE FUNCTION open (BYTES) RETURNS BYTES INVERSE OF seal AS NATIVE 'aes_256_gcm_open' WITH (key_file = 'KEY');
";

/// Writes the key of a test; returns its folder and the declarations that use it.
fn with_key(key: &str) -> (Folder, String) {
    let folder = Folder::new();
    let path = folder.write_private("shop.key", key);
    let functions = FUNCTIONS.replace("KEY", &path.display().to_string());
    (folder, functions)
}

const SECRET: &str = "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2";

/// A pass fails if its data exceeds the scratch space; a message of the protocol's size must fit.
#[test]
fn longest_messages_pass_functions() {
    let (_keys, functions) = with_key(SECRET);
    let cart = Named::new("cart-1");
    let data = "data := req.payload";
    let stages = format!(
        "compress (by = lz4, {data}) -> encrypt (seal = seal, {data}) -> decrypt (open = open, {data})
         -> decompress (by = unlz4, {data})"
    );
    let elements = ["compress", "decompress", "encrypt", "decrypt"];
    let test = Test::new(&elements, &[cart.serve()], &stages, &functions);
    // Incompressible bytes, with room in the message for the names around them.
    let payload: Vec<u8> = (0..(4 << 20) - 4096_u64).map(|n| weft_core::hash::hash_word(n) as u8).collect();
    runtime().block_on(async {
        let mut client = test.client().await;
        for payload in [&payload[..], b"short", b""] {
            let message = CartRequest { payload: payload.to_vec().into(), ..CartRequest::default() };
            client.0.get(message).await.expect("it is answered");
            assert!(
                *cart.payload.lock().expect("no panic") == payload,
                "{} bytes came otherwise",
                payload.len()
            );
        }
    });
    assert_eq!(test.node.stop(), Some(0));
}

/// The server would read the client's plain text, or a call without a token would reach it.
#[test]
fn payload_sealing_needs_token() {
    let (keys, functions) = with_key(SECRET);
    let token_key = keys.write_private("token.key", "0123456789abcdef0123456789abcdef\n");
    let functions = format!(
        "{functions}CREATE FUNCTION token (TEXT) RETURNS TEXT? AS NATIVE 'jwt_verify'
         WITH (algorithm = 'HS256', key_file = '{}');",
        token_key.display()
    );
    let cart = Named::new("cart-1");
    let stages = "jwt (verify = token) MANDATORY -> encrypt (seal = seal, data := req.payload)";
    let test = Test::new(&["jwt", "encrypt"], &[cart.serve()], stages, &functions);
    // `{\"alg\":\"HS256\"}.{\"sub\":\"ann\"}` under that key.
    let token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.oXgO8QuXJbN8wPn7kSrx5AOcdGI8kDZGnGeb3CZe5bM";
    runtime().block_on(async {
        let mut client = test.client().await;
        let call = |token: Option<&str>| {
            let message =
                CartRequest { payload: b"4111 1111 1111 1111".to_vec().into(), ..CartRequest::default() };
            let mut request = Request::new(message);
            if let Some(token) = token {
                let value = format!("Bearer {token}").parse().expect("a header");
                request.metadata_mut().insert("authorization", value);
            }
            request
        };
        for wrong in [None, Some("x"), Some(&token[..token.len() - 1])] {
            let refused = client.0.get(call(wrong)).await.expect_err("it is no token");
            assert_eq!(refused.code(), Code::Unauthenticated);
        }
        let mut sealed = Vec::new();
        for _ in 0..2 {
            client.0.get(call(Some(token))).await.expect("it is a token");
            sealed.push(cart.payload.lock().expect("no panic").clone());
        }
        assert_eq!(sealed[0].len(), b"4111 1111 1111 1111".len() + 40);
        assert_ne!(sealed[0], sealed[1], "two messages under one nonce");
    });
    let status = output(weft(&test.folder).args(["status", "--json", "--admin", &test.node.admin]));
    let printed = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(!printed.contains(SECRET) && !printed.contains("0123456789abcdef"), "{printed}");
    assert_eq!(test.node.stop(), Some(0));
}

/// A machine without the key would accept calls, or a check on a laptop would need the key.
#[test]
fn missing_key_checks_but_does_not_run() {
    let folder = Folder::new();
    let program = folder.write(
        "network.weft",
        "CREATE TYPE cart FROM PROTO 'cart.proto';
IMPORT 'library/elements/encrypt.weft';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE FUNCTION seal (BYTES) RETURNS BYTES AS NATIVE 'aes_256_gcm_seal' WITH (key_env = 'WEFT_TEST_NO_SUCH_KEY');
CREATE CHAIN shop ON frontend -> cart AS encrypt (seal = seal, data := req.payload); END;
",
    );
    let check = output(weft(&folder).arg("check").arg(&program));
    assert_eq!(check.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&check.stderr).contains("W0504"), "{check:?}");
    let run = output(weft(&folder).arg("run").arg(&program).args(["--admin", "127.0.0.1:0"]));
    assert_eq!(run.status.code(), Some(3));
    let printed = String::from_utf8_lossy(&run.stderr);
    assert!(printed.contains("the environment has no variable `WEFT_TEST_NO_SUCH_KEY`"), "{printed}");
}
