//! `multipart/form-data` on real sockets, on both drivers: tiny pieces, ten megabytes, and the answers to what is refused.

mod common;

use common::{client::Client, for_each_router};
use shardlet::{Exchange, Result, Router, asynchronous, post};
use std::{io::Write as _, net::SocketAddr};

const FIRST_TEXT_MAX: usize = 16;

/// Reads `text` whole, skips `skip`, and sums everything else without keeping it.
async fn describe(x: &mut Exchange) -> Result<()> {
    let mut form = x.multipart()?;
    while let Some(mut part) = form.next_part(x).await? {
        match part.name() {
            "skip" => writeln!(x, "skip")?,
            "text" => {
                let text = part.collect(x, FIRST_TEXT_MAX).await?;
                writeln!(x, "text={}", text.escape_ascii())?;
            }
            _ => {
                let (mut length, mut sum, mut largest) = (0, 0u64, 0);
                while let Some(bytes) = part.chunk(x).await? {
                    length += bytes.len();
                    largest = largest.max(bytes.len());
                    sum =
                        bytes.iter().fold(sum, |sum, &octet| sum.wrapping_mul(31).wrapping_add(octet.into()));
                }
                let name = part.filename().unwrap_or_default().to_owned();
                writeln!(x, "{name}: {length} {sum} {}", largest <= 256 * 1024)?;
            }
        }
    }
    Ok(())
}

fn router() -> Router {
    Router::new().route_with("/form", post(asynchronous(describe)), |route| {
        route.body_limit(64 << 20);
    })
}

fn head(content_type: &str, length: usize) -> String {
    format!(
        "POST /form HTTP/1.1\r\nHost: t\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    )
}

const FORM_TYPE: &str = "multipart/form-data; boundary=XX";

fn part(name: &str, content: &[u8]) -> Vec<u8> {
    let head =
        format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}.bin\"\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

/// The answer to a form, with the request sent at once.
fn answer(address: SocketAddr, content_type: &str, form: &[u8]) -> (u16, String) {
    let mut client = Client::connect(address);
    client.send([head(content_type, form.len()).as_bytes(), form].concat());
    let response = client.read_response();
    (response.status, response.text().to_owned())
}

#[test]
fn a_form_in_tiny_pieces_is_the_same_form() {
    for_each_router(router, |address| {
        let form = [
            part("text", b"h\r\n--Xi"),
            part("skip", &[b'-'; 100]),
            part("file", b"abc"),
            b"--XX--\r\n".to_vec(),
        ]
        .concat();
        let sum = (97 * 31 + 98) * 31 + 99;
        let expected = format!("text=h\\r\\n--Xi\nskip\nfile.bin: 3 {sum} true\n");
        assert_eq!(answer(address, FORM_TYPE, &form), (200, expected.clone()));
        let mut client = Client::connect(address);
        // Twice on one connection: the form ends exactly where the body ends.
        for _ in 0..2 {
            client.send(head(FORM_TYPE, form.len()));
            for octet in form.chunks(1) {
                client.send(octet);
            }
            assert_eq!(client.read_response().text(), expected);
        }
    });
}

/// No chunk that the handler sees grows with the file; that the window does not either is tested with the input queue.
#[test]
fn a_file_of_ten_megabytes_passes_through() {
    for_each_router(router, |address| {
        let content: Vec<u8> = (0..10_000_000u32).map(|number| (number % 251) as u8).collect();
        let sum = content.iter().fold(0u64, |sum, &octet| sum.wrapping_mul(31).wrapping_add(octet.into()));
        let form = [part("file", &content), part("text", b"end"), b"--XX--\r\n".to_vec()].concat();
        let mut client = Client::connect(address);
        let mut writer = client.stream().try_clone().expect("a second handle");
        let sent = [head(FORM_TYPE, form.len()).as_bytes(), &form].concat();
        let sender = std::thread::spawn(move || writer.write_all(&sent).expect("send"));
        assert_eq!(client.read_response().text(), format!("file.bin: 10000000 {sum} true\ntext=end\n"));
        sender.join().expect("sent");
    });
}

#[test]
fn what_is_refused_is_answered_with_its_status() {
    for_each_router(router, |address| {
        let whole = [part("text", b"a"), b"--XX--".to_vec()].concat();
        let status = |content_type: &str, form: &[u8]| answer(address, content_type, form).0;
        assert_eq!(status(FORM_TYPE, &whole), 200);
        assert_eq!(status("text/plain", &whole), 415);
        assert_eq!(status(&format!("{FORM_TYPE}\r\nContent-Encoding: gzip"), &whole), 415);
        assert_eq!(status("multipart/form-data", &whole), 400);
        assert_eq!(status(FORM_TYPE, &whole[..whole.len() - 1]), 400);
        assert_eq!(status(FORM_TYPE, b"--XX\r\nX: y\r\n\r\n\r\n--XX--"), 400);
        assert_eq!(status(FORM_TYPE, &[part("text", &[b'a'; 17]), b"--XX--".to_vec()].concat()), 413);
        assert_eq!(status(FORM_TYPE, &[part("skip", b"").repeat(1_001), b"--XX--".to_vec()].concat()), 413);
        assert_eq!(status(FORM_TYPE, &part(&"n".repeat(9_000), b"")), 413);
        assert_eq!(status(FORM_TYPE, &[&[b' '; 9_000][..], &whole].concat()), 413);
    });
}
