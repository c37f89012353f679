//! The syntax of program tests: comment lines that begin with `--@`.
//!
//! ```text
//! --@ run: interp jit                      back ends; both if there is no such line
//! --@ now: '5 ms'                          the clock of the passes that follow, from 0
//! --@ rand: 7                              what `rand()` draws from in the passes that follow
//! --@ in: request user='alice' weight=1.5  runs a pass: open, request (OPEN and REQUEST), message (REQUEST alone),
//!                                          response, close, every INSTANCE N; a name is an input of the chain,
//!                                          `header[x]`, or `opened` (of close); bytes may be `0x1f8b`;
//!                                          a list is `lines='12 sku-a; 3 -'`, or `'#500'` if it is too long
//! ```
//! `in: frame port='wan' ipv4(src='10.0.0.1') udp(dst_port=53) 'payload'` builds a frame and runs the
//! pass of the fields that parsers find in it.
//!
//! The expected results of a pass follow it; they must list all edits and rows.
//! ```text
//! --@ out: forward | drop | abort STATUS 'text' | reply | redirect 'to' | failed 'fault'
//! --@ set: user='x' header[y]=NULL answer[z]='1' reply[server]='s'      `_` is a value that is not said
//! --@ leaves: ethernet() vlan(id=7) ipv4() 'payload'                    the frame behind PUSH, POP and CUT
//! --@ row log: ('alice', 7, NULL)
//! --@ delay: '5 ms'     --@ mirror: 'cluster'
//! --@ mark: 3     --@ mark remaining: 1500     --@ mark deadline: '5 ms'     from now on; 0 if not said
//! --@ table acl.ac_tab: ('alice', 'W') ('bob', 'R')
//! --@ var limit.n: 5    --@ call limit.left: 2.5    --@ counters acl: seen=2 aborted=1
//! ```

/// A line of a test.
#[derive(Clone, Debug)]
pub(crate) struct VectorLine {
    /// Its number in the file.
    pub(crate) number: usize,
    /// The words before the colon.
    pub(crate) words: Vec<String>,
    /// The tokens after it.
    pub(crate) tokens: Vec<Token>,
}

/// A token of a line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// A name, a number, a keyword: anything without blanks and signs.
    Word(String),
    /// `'text'`
    Text(String),
    /// `(`, `)`, `,` or `=`.
    Sign(char),
}

/// The lines of a program's text.
pub(crate) fn lines(text: &str) -> Vec<VectorLine> {
    let marked =
        text.lines().enumerate().filter_map(|(at, line)| Some((at + 1, line.trim().strip_prefix("--@")?)));
    marked
        .map(|(number, line)| {
            let (head, rest) = line.split_once(':').unwrap_or((line, ""));
            let words = head.split_whitespace().map(str::to_owned).collect();
            VectorLine { number, words, tokens: tokens(rest) }
        })
        .collect()
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(&c) = chars.peek() {
        match c {
            c if c.is_whitespace() => {
                chars.next();
            }
            '\'' => {
                chars.next();
                tokens.push(Token::Text(quoted(&mut chars)));
            }
            '(' | ')' | ',' | '=' => {
                chars.next();
                tokens.push(Token::Sign(c));
            }
            _ => {
                let mut word = String::new();
                while let Some(&c) = chars.peek().filter(|c| !c.is_whitespace() && !"(),='".contains(**c)) {
                    word.push(c);
                    chars.next();
                }
                tokens.push(Token::Word(word));
            }
        }
    }
    tokens
}

/// The text up to its closing quote; `''` is a quote.
fn quoted(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        if c == '\'' && chars.next_if_eq(&'\'').is_none() {
            break;
        }
        text.push(c);
    }
    text
}

/// `name=value` pairs.
pub(crate) fn pairs(tokens: &[Token]) -> Vec<(String, Token)> {
    tokens
        .chunks(3)
        .map(|chunk| match chunk {
            [Token::Word(name), Token::Sign('='), value] => (name.clone(), value.clone()),
            other => panic!("`name=value` is wanted, not {other:?}"),
        })
        .collect()
}

/// Rows in parentheses.
pub(crate) fn rows(tokens: &[Token]) -> Vec<Vec<Token>> {
    let mut rows = Vec::new();
    for token in tokens {
        match token {
            Token::Sign('(') => rows.push(Vec::new()),
            Token::Sign(_) => {}
            value => rows.last_mut().expect("a row begins with `(`").push(value.clone()),
        }
    }
    rows
}
