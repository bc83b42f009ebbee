//! The switch to another protocol, interim answers and trailers on real sockets, on both drivers.

mod common;

use common::{client::Client, for_each_router};
use shardlet::{Exchange, Result, Router, asynchronous, get, post};

fn router() -> Router {
    Router::new()
        .route(
            "/echo",
            get(asynchronous(async |x: &mut Exchange| -> Result<()> {
                x.upgrade("echo")?;
                while let Some(bytes) = x.next_chunk().await? {
                    x.write(bytes)?;
                    x.write_ready().await?;
                }
                Ok(())
            })),
        )
        .route(
            "/hinted",
            post(asynchronous(async |x: &mut Exchange| -> Result<()> {
                x.early_hints(&["</a.css>; rel=preload"])?;
                let mut length = 0;
                while let Some(bytes) = x.next_chunk().await? {
                    length += bytes.len();
                }
                x.set_trailer("X-Length", length.to_string())?;
                write!(x, "{} trailers", x.trailers().len())
            })),
        )
}

/// Ten megabytes through the tunnel, the first of them in one segment with the request; then the client's end.
#[test]
fn a_tunnel_carries_what_it_is_given() {
    for_each_router(router, |address| {
        let mut client = Client::connect(address);
        let sent: Vec<u8> = (0..10_000_000u32).map(|number| (number % 251) as u8).collect();
        let request = b"GET /echo HTTP/1.1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        let mut writer = client.stream().try_clone().expect("a second handle");
        let all = [&request[..], &sent].concat();
        let sender = std::thread::spawn(move || {
            std::io::Write::write_all(&mut writer, &all).expect("send");
            writer.shutdown(std::net::Shutdown::Write).expect("half close");
        });
        let head = client.take_until(b"\r\n\r\n");
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
        assert!(client.read_exact(sent.len()) == sent, "the bytes come back as they were");
        assert!(client.read_until_close().is_empty());
        sender.join().expect("sent");
    });
}

#[test]
fn hints_come_first_and_trailers_last() {
    for_each_router(router, |address| {
        let mut client = Client::connect(address);
        for _ in 0..3 {
            client.send(
                "POST /hinted HTTP/1.1\r\nHost: t\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\r\n0\r\nX-One: 1\r\nX-Two: 2\r\n\r\n",
            );
            assert_eq!(
                client.take_until(b"\r\n\r\n"),
                b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
            );
            let head = client.take_until(b"\r\n\r\n");
            assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", head.escape_ascii());
            assert_eq!(client.take_until(b"\r\n\r\n"), b"a\r\n2 trailers\r\n0\r\nX-Length: 3\r\n\r\n");
        }
    });
}
