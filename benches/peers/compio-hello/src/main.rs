//! compio with a bare httparse loop: what the runtime costs.
use compio::buf::BufResult;
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::net::{TcpListener, TcpStream};

async fn conn(mut s: TcpStream) {
    let mut buf: Vec<u8> = Vec::with_capacity(8192);
    let mut rest: Vec<u8> = Vec::new();
    let mut out: Vec<u8> = Vec::with_capacity(512);
    loop {
        let BufResult(r, b) = s.read(buf).await;
        buf = b;
        match r {
            Ok(n) if n > 0 => {}
            _ => return,
        }
        out.clear();
        let open = if rest.is_empty() {
            let (used, open) = common::answer(&buf, &mut out);
            rest.extend_from_slice(&buf[used..]);
            open
        } else {
            rest.extend_from_slice(&buf);
            let (used, open) = common::answer(&rest, &mut out);
            rest.drain(..used);
            open
        };
        buf.clear();
        if !out.is_empty() {
            let BufResult(r, o) = s.write_all(out).await;
            out = o;
            if r.is_err() {
                return;
            }
        }
        if !open {
            return;
        }
    }
}

#[compio::main]
async fn main() {
    let l = TcpListener::from_std(common::listener(common::port())).unwrap();
    loop {
        if let Ok((s, _)) = l.accept().await {
            compio::runtime::spawn(conn(s)).detach();
        }
    }
}
