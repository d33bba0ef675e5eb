//! ICAP, RFC 3507: OPTIONS, and RESPMOD with a preview. The file is the body of an HTTP response, which the
//! service lets pass (204, or the response as it was) or replaces.

use super::{Machine, Output, Refusal, Verdict, words};

/// Longest head of an answer, bytes, with the first line of the HTTP response behind it.
const HEAD_BYTES: usize = 16 << 10;
/// The longest chunk that is sent, bytes.
const CHUNK_BYTES: usize = 32 << 10;
/// The longest preview that is sent, bytes, whatever the service asks for.
const PREVIEW_BYTES: usize = 64 << 10;

/// The longest line with the size of a chunk, bytes.
const LINE_BYTES: usize = 256;

/// The end of a head.
const END: &[u8] = b"\r\n\r\n";
/// The last chunk of a body, RFC 2616 3.6.1.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// The last chunk of a preview that is the whole body, RFC 3507 4.5.
const LAST_OF_ALL: &[u8] = b"0; ieof\r\n\r\n";

/// The headers by which services name a virus.
const FOUND: [&str; 3] = ["x-infection-found", "x-virus-id", "x-violations-found"];

/// A service of ICAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IcapPlace {
    /// Host and port, as they are written in a URL.
    pub(crate) authority: String,
    /// The path without its first slash.
    pub(crate) service: String,
}

impl IcapPlace {
    /// The first lines of a request.
    fn request(&self, method: &str) -> String {
        let Self { authority, service } = self;
        format!("{method} icap://{authority}/{service} ICAP/1.0\r\nHost: {authority}\r\n")
    }
}

/// The abilities of a service: its answer to OPTIONS, RFC 3507 4.10.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// ISTag: it changes when verdicts may.
    pub(crate) tag: Vec<u8>,
    /// Bytes of the preview. None if the service takes none.
    pub(crate) preview: Option<usize>,
}

/// A head: its status and its headers.
#[derive(Debug)]
struct Head<'a> {
    status: u16,
    lines: &'a str,
}

impl<'a> Head<'a> {
    /// Reads a head of `protocol` without the empty line.
    fn parse(bytes: &'a [u8], protocol: &str) -> Result<Self, Refusal> {
        let malformed = Refusal::Malformed("its answer is no head of ICAP");
        let text = std::str::from_utf8(bytes).map_err(|_| malformed.clone())?;
        let (first, lines) = text.split_once("\r\n").unwrap_or((text, ""));
        let rest = first.strip_prefix(protocol).ok_or_else(|| malformed.clone())?;
        let digits = rest.split(' ').nth(1).filter(|digits| digits.len() == 3);
        let status = digits.and_then(|digits| digits.parse().ok()).ok_or(malformed)?;
        Ok(Self { status, lines })
    }

    /// The value of a header; `name` is in lower case.
    fn value(&self, name: &str) -> Option<&'a str> {
        let fields = self.lines.split("\r\n").filter_map(|line| line.split_once(':'));
        let mut named = fields.filter(|(field, _)| field.trim().eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.trim())
    }
}

/// Bytes up to the end of a head.
#[derive(Debug, Default)]
struct Received(Vec<u8>);

impl Received {
    fn add(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        if self.0.len() + bytes.len() > HEAD_BYTES {
            return Err(Refusal::Malformed("the head of its answer is too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// The length of the head, without the empty line.
    fn end(&self) -> Option<usize> {
        self.0.windows(END.len()).position(|four| four == END)
    }

    fn head(&self, end: usize) -> &[u8] {
        self.0.get(..end).unwrap_or_default()
    }

    /// The bytes behind the head.
    fn rest(&self, end: usize) -> &[u8] {
        self.0.get(end + END.len()..).unwrap_or_default()
    }
}

/// The question for the abilities of a service.
#[derive(Debug)]
pub(crate) struct IcapOptions {
    place: Option<IcapPlace>,
    received: Received,
}

impl IcapOptions {
    pub(crate) fn new(place: IcapPlace) -> Self {
        Self { place: Some(place), received: Received::default() }
    }
}

impl Machine for IcapOptions {
    type Result = Offer;

    fn next_output(&mut self) -> Output {
        let Some(place) = self.place.take() else { return Output::Nothing };
        let head = place.request("OPTIONS");
        Output::Bytes(
            format!("{head}Connection: close\r\nEncapsulated: null-body=0\r\n\r\n").into(),
        )
    }

    fn frame(&mut self, _bytes: &[u8], _is_last: bool) -> Vec<u8> {
        Vec::new()
    }

    fn handle_input(&mut self, bytes: &[u8]) -> Result<Option<Offer>, Refusal> {
        self.received.add(bytes)?;
        let Some(end) = self.received.end() else { return Ok(None) };
        let head = Head::parse(self.received.head(end), "ICAP/1.")?;
        if head.status != 200 {
            return Err(Refusal::Refused(format!("status {} to OPTIONS", head.status)));
        }
        let preview = head.value("preview").and_then(|bytes| bytes.parse::<usize>().ok());
        Ok(Some(Offer {
            tag: head.value("istag").unwrap_or_default().into(),
            preview: preview.map(|bytes| bytes.min(PREVIEW_BYTES)),
        }))
    }
}

/// The next part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Head,
    /// So many bytes of the preview are left.
    Preview(usize),
    /// The answer to the preview.
    Answer,
    Body,
    End,
}

/// The scan of one file.
#[derive(Debug)]
pub(crate) struct IcapScan {
    place: IcapPlace,
    /// Bytes of the file.
    size: u64,
    /// Bytes of the preview. None without one.
    preview: Option<usize>,
    stage: Stage,
    sent_all: bool,
    /// The sum of what was sent.
    sent: Sum,
    received: Received,
    /// The body of the response in place of the file, once it has begun.
    body: Option<Body>,
}

impl IcapScan {
    /// The scan of a file of `size` bytes by a service with these abilities.
    pub(crate) fn new(place: IcapPlace, offer: &Offer, size: u64) -> Self {
        Self {
            place,
            size,
            preview: offer.preview,
            stage: Stage::Head,
            sent_all: false,
            sent: Sum::default(),
            received: Received::default(),
            body: None,
        }
    }

    /// Takes a part of the body. The file is let pass if all of it comes back.
    fn judge_body(&mut self, bytes: &[u8]) -> Result<Option<Verdict>, Refusal> {
        let Some(body) = &mut self.body else { return Ok(None) };
        let has_ended = body.take(bytes)?;
        if body.bytes > self.size {
            return Err(Refusal::Malformed("its answer is longer than the file"));
        }
        match has_ended {
            false => Ok(None),
            true if !self.sent_all => Err(Refusal::Malformed("it answers before it has the file")),
            true if (body.bytes, body.sum) == (self.size, self.sent) => Ok(Some(Verdict::Clean)),
            true => Ok(Some(Verdict::Blocked)),
        }
    }

    /// RFC 3507 4.4.1 and 4.9.1: the heads of an HTTP request and of the response with the file. No name of a
    /// file goes out.
    fn head(&self) -> Vec<u8> {
        let request = "GET http://frevo/file HTTP/1.1\r\nHost: frevo\r\n\r\n";
        let response = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
            self.size
        );
        let (at, body) = (request.len(), request.len() + response.len());
        let preview = self.preview.map(|bytes| format!("Preview: {bytes}\r\n")).unwrap_or_default();
        let head = self.place.request("RESPMOD");
        format!(
            "{head}Allow: 204\r\nConnection: close\r\n{preview}\
             Encapsulated: req-hdr=0, res-hdr={at}, res-body={body}\r\n\r\n{request}{response}"
        )
        .into()
    }

    /// The verdict of the answer that begins in `received`. None while it is not there.
    fn verdict(&mut self, end: usize, head: &Head<'_>) -> Result<Option<Verdict>, Refusal> {
        let named =
            FOUND.iter().find_map(|name| head.value(name).filter(|value| names_virus(value)));
        if let Some(found) = named {
            return Ok(Some(Verdict::Infected(virus(found))));
        }
        match head.status {
            204 if self.sent_all || self.stage == Stage::Answer => Ok(Some(Verdict::Clean)),
            204 => Err(Refusal::Malformed("it answers before it has the file")),
            200 if head.value("encapsulated").is_some_and(|parts| parts.contains("null-body")) => {
                Ok(Some(Verdict::Blocked))
            }
            200 => {
                // RFC 3507 4.8.2: the response that clients would get in place of the file.
                let rest = self.received.rest(end);
                let Some(line) = rest.windows(2).position(|two| two == b"\r\n") else {
                    return Ok(None);
                };
                let first = rest.get(..line).unwrap_or_default();
                if Head::parse(first, "HTTP/1.")?.status != 200 {
                    return Ok(Some(Verdict::Blocked));
                }
                let Some(head) = rest.windows(END.len()).position(|four| four == END) else {
                    return Ok(None);
                };
                // A service may send the head before it has judged: c-icap does, and sends no body then.
                let body = rest.get(head + END.len()..).unwrap_or_default().to_vec();
                self.body = Some(Body::default());
                self.judge_body(&body)
            }
            status => Err(Refusal::Refused(format!("status {status}"))),
        }
    }
}

/// True for a value that says that there is something.
fn names_virus(value: &str) -> bool {
    !value.is_empty() && value != "0"
}

/// A sum over bytes: FNV-1a.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum(u64);

impl Default for Sum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// The chunks of a body, RFC 2616 3.6.1, of which the length and the sum count.
#[derive(Debug, Default)]
struct Body {
    /// Bytes of the body so far, with those of the present chunk.
    bytes: u64,
    sum: Sum,
    /// Bytes that are left of a chunk.
    left: u64,
    /// Bytes that are left of the end of its line.
    ends: u8,
    /// The line with the size of the next chunk.
    line: Vec<u8>,
}

impl Body {
    /// Takes bytes. True once the last chunk has come.
    fn take(&mut self, mut bytes: &[u8]) -> Result<bool, Refusal> {
        let malformed = || Refusal::Malformed("its answer has no chunks");
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left = self.left.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX));
                self.sum.add(bytes.get(..taken).unwrap_or_default());
                bytes = bytes.get(taken..).unwrap_or_default();
                continue;
            }
            bytes = rest;
            if self.ends > 0 {
                self.ends -= 1;
                continue;
            }
            self.line.push(*first);
            if self.line.len() > LINE_BYTES {
                return Err(malformed());
            }
            let Some(line) = self.line.strip_suffix(b"\r\n") else { continue };
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let digits = std::str::from_utf8(digits).map_err(|_| malformed())?.trim();
            let size = u64::from_str_radix(digits, 16).map_err(|_| malformed())?;
            self.line.clear();
            if size == 0 {
                return Ok(true);
            }
            self.bytes = self.bytes.saturating_add(size);
            (self.left, self.ends) = (size, 2);
        }
        Ok(false)
    }
}

/// The name of a virus: `Type=0; Resolution=2; Threat=Eicar;` or the name alone.
fn virus(value: &str) -> String {
    let parts = value.split(';').map(str::trim);
    let threat = parts.filter_map(|part| part.strip_prefix("Threat=")).next();
    words(threat.unwrap_or(value).as_bytes())
}

/// A chunk, RFC 2616 3.6.1.
fn chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    if !bytes.is_empty() {
        out.extend(format!("{:x}\r\n", bytes.len()).into_bytes());
        out.extend_from_slice(bytes);
        out.extend(b"\r\n");
    }
}

impl Machine for IcapScan {
    type Result = Verdict;

    fn next_output(&mut self) -> Output {
        match self.stage {
            Stage::Head => {
                self.stage = self.preview.map_or(Stage::Body, Stage::Preview);
                Output::Bytes(self.head())
            }
            Stage::Preview(0) if self.size > 0 => {
                self.stage = Stage::Answer;
                Output::Bytes(LAST_CHUNK.to_vec())
            }
            Stage::Preview(left) => Output::Data(left.min(CHUNK_BYTES)),
            Stage::Body => Output::Data(CHUNK_BYTES),
            Stage::Answer | Stage::End => Output::Nothing,
        }
    }

    fn frame(&mut self, bytes: &[u8], is_last: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + 32);
        chunk(&mut out, bytes);
        self.sent.add(bytes);
        match (self.stage, is_last) {
            (Stage::Preview(left), false) => {
                self.stage = Stage::Preview(left.saturating_sub(bytes.len()));
            }
            (Stage::Preview(_), true) => out.extend(LAST_OF_ALL),
            (_, true) => out.extend(LAST_CHUNK),
            (_, false) => {}
        }
        if is_last {
            self.stage = Stage::End;
            self.sent_all = true;
        }
        out
    }

    fn handle_input(&mut self, bytes: &[u8]) -> Result<Option<Verdict>, Refusal> {
        if self.body.is_some() {
            return self.judge_body(bytes);
        }
        self.received.add(bytes)?;
        let Some(end) = self.received.end() else { return Ok(None) };
        let head = self.received.head(end).to_vec();
        let head = Head::parse(&head, "ICAP/1.")?;
        if head.status != 100 {
            return self.verdict(end, &head);
        }
        // RFC 3507 4.5: only after a preview that is not the whole file.
        if self.stage != Stage::Answer {
            return Err(Refusal::Malformed("it asks for more where there is no more"));
        }
        self.stage = Stage::Body;
        let rest = self.received.rest(end).to_vec();
        self.received = Received::default();
        if rest.is_empty() { Ok(None) } else { self.handle_input(&rest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> IcapPlace {
        IcapPlace { authority: String::from("h:1344"), service: String::from("scan") }
    }

    fn scan(preview: Option<usize>, size: u64) -> IcapScan {
        let mut scan = IcapScan::new(place(), &Offer { tag: Vec::new(), preview }, size);
        assert!(matches!(scan.next_output(), Output::Bytes(_)));
        scan
    }

    fn infected(name: &str) -> Result<Option<Verdict>, Refusal> {
        Ok(Some(Verdict::Infected(String::from(name))))
    }

    #[test]
    fn a_service_tells_its_abilities() {
        let mut options = IcapOptions::new(place());
        let Output::Bytes(asked) = options.next_output() else { panic!("a request") };
        assert!(asked.starts_with(b"OPTIONS icap://h:1344/scan ICAP/1.0\r\nHost: h:1344\r\n"));
        assert_eq!(options.handle_input(b"ICAP/1.0 200 OK\r\nISTag: \"a\"\r\nPrev").unwrap(), None);
        let offer = options.handle_input(b"iew: 4\r\n\r\n").unwrap().unwrap();
        assert_eq!(offer, Offer { tag: b"\"a\"".to_vec(), preview: Some(4) });
        let answer = |text: &[u8]| IcapOptions::new(place()).handle_input(text);
        let large = answer(b"ICAP/1.0 200 OK\r\nPreview: 99999999\r\n\r\n").unwrap().unwrap();
        assert_eq!(large.preview, Some(PREVIEW_BYTES));
        answer(b"ICAP/1.0 404 Not found\r\n\r\n").unwrap_err();
        answer(b"HTTP/1.1 200 OK\r\n\r\n").unwrap_err();
        answer(&[b'a'; HEAD_BYTES + 1]).unwrap_err();
    }

    #[test]
    fn the_encapsulated_heads_are_where_the_request_says() {
        let mut scan = IcapScan::new(place(), &Offer::default(), 5);
        let Output::Bytes(head) = scan.next_output() else { panic!("a head") };
        let text = String::from_utf8(head).unwrap();
        let (icap, rest) = text.split_once("\r\n\r\n").unwrap();
        assert!(icap.contains("\r\nAllow: 204\r\n") && !icap.contains("Preview"));
        let at = |name: &str| {
            let value = icap.split_once(name).unwrap().1;
            value.split([',', '\r']).next().unwrap().parse::<usize>().unwrap()
        };
        assert!(rest[at("res-hdr=")..].starts_with("HTTP/1.1 200 OK\r\n"));
        assert_eq!(at("res-body="), rest.len());
        assert!(rest.contains("Content-Length: 5\r\n"));
    }

    #[test]
    fn a_file_goes_after_its_preview_or_within_it() {
        let mut long = scan(Some(4), 6);
        assert_eq!(long.next_output(), Output::Data(4));
        assert_eq!(long.frame(b"abcd", false), b"4\r\nabcd\r\n");
        assert_eq!(long.next_output(), Output::Bytes(LAST_CHUNK.to_vec()));
        assert_eq!(long.next_output(), Output::Nothing);
        assert_eq!(long.handle_input(b"ICAP/1.0 100 Continue\r\n\r\n"), Ok(None));
        assert_eq!(long.next_output(), Output::Data(CHUNK_BYTES));
        assert_eq!(long.frame(b"ef", true), b"2\r\nef\r\n0\r\n\r\n");
        assert_eq!(long.next_output(), Output::Nothing);
        assert_eq!(long.handle_input(b"ICAP/1.0 204 No\r\n\r\n"), Ok(Some(Verdict::Clean)));

        // The service may judge by the preview.
        let mut by_preview = scan(Some(0), 6);
        assert_eq!(by_preview.next_output(), Output::Bytes(LAST_CHUNK.to_vec()));
        assert_eq!(by_preview.handle_input(b"ICAP/1.0 204 No\r\n\r\n"), Ok(Some(Verdict::Clean)));

        let mut short = scan(Some(9), 3);
        assert_eq!(short.next_output(), Output::Data(9));
        assert_eq!(short.frame(b"abc", true), b"3\r\nabc\r\n0; ieof\r\n\r\n");
        let asks = short.handle_input(b"ICAP/1.0 100 Continue\r\n\r\n");
        assert!(asks.is_err(), "there is no more");
    }

    #[test]
    fn a_virus_is_named_or_its_response_replaced() {
        let answer = |text: &str| {
            let mut scan = scan(None, 1);
            scan.frame(b"a", true);
            scan.handle_input(text.as_bytes())
        };
        let named =
            "ICAP/1.0 200 OK\r\nX-Infection-Found: Type=0; Resolution=2; Threat=Eicar;\r\n\r\n";
        assert_eq!(answer(named), infected("Eicar"));
        assert_eq!(answer("ICAP/1.0 200 OK\r\nX-Virus-ID: Eicar\r\n\r\n"), infected("Eicar"));
        let page =
            "ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0\r\n\r\nHTTP/1.1 403 Forbidden\r\n\r\n";
        assert_eq!(answer(page), Ok(Some(Verdict::Blocked)));
        assert_eq!(answer("ICAP/1.0 200 OK\r\n\r\nHTTP/1.1 20"), Ok(None));
        let empty = "ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, null-body=9\r\n\r\n";
        assert_eq!(answer(empty), Ok(Some(Verdict::Blocked)));
        let none = "ICAP/1.0 204 No\r\nX-Virus-ID:\r\nX-Violations-Found: 0\r\n\r\n";
        assert_eq!(answer(none), Ok(Some(Verdict::Clean)));
        for refused in ["ICAP/1.0 500 Error\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "\r\n\r\n"] {
            assert!(answer(refused).is_err(), "{refused}");
        }
        assert!(answer(&format!("ICAP/1.0 200 OK\r\n\r\n{}", "a".repeat(HEAD_BYTES))).is_err());
        // A verdict about a part of the file is none.
        let mut early = scan(None, 2);
        early.frame(b"a", false);
        assert!(early.handle_input(b"ICAP/1.0 204 No\r\n\r\n").is_err());
    }

    #[test]
    fn a_file_passes_if_all_of_it_comes_back() {
        let head = "ICAP/1.0 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nVia: c-icap\r\n\r\n";
        let answer = |body: &str| {
            let mut scan = scan(None, 20);
            // The head comes before the service has the file.
            assert_eq!(scan.handle_input(head.as_bytes()), Ok(None));
            scan.frame(b"01234567890123456789", true);
            let mut parts = body.as_bytes().iter().map(|byte| scan.handle_input(&[*byte]));
            let told = parts.find(|part| *part != Ok(None));
            told.unwrap_or_else(|| scan.handle_end().map(Some))
        };
        let whole = "a\r\n0123456789\r\na; x\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(answer(whole), Ok(Some(Verdict::Clean)));
        let other = whole.replace('3', "4");
        assert_eq!(answer(&other), Ok(Some(Verdict::Blocked)), "as long, and not the same");
        assert_eq!(answer("0\r\n\r\n"), Ok(Some(Verdict::Blocked)));
        assert_eq!(answer("5\r\nabcde\r\n0\r\n\r\n"), Ok(Some(Verdict::Blocked)));
        assert_eq!(answer("a\r\n0123456789\r\n"), Err(Refusal::Closed));
        for odd in ["15\r\n", "ffffffffffffffff\r\n", "\r\n", "g\r\n", "-1\r\n", "\u{ff}\r\n"] {
            assert!(matches!(answer(odd), Err(Refusal::Malformed(_))), "{odd:?}");
        }
        assert!(matches!(answer(&"1".repeat(LINE_BYTES + 1)), Err(Refusal::Malformed(_))));
        let mut early = scan(None, 2);
        early.handle_input(head.as_bytes()).unwrap();
        early.handle_input(b"2\r\nab\r\n0\r\n").unwrap_err();
    }
}
