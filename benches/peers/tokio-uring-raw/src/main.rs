//! tokio-uring with a bare httparse loop: what the runtime costs.
use tokio_uring::net::{TcpListener, TcpStream};

async fn conn(s: TcpStream) {
    let mut buf: Vec<u8> = Vec::with_capacity(8192);
    let mut rest: Vec<u8> = Vec::new();
    let mut out: Vec<u8> = Vec::with_capacity(512);
    loop {
        let (r, b) = s.read(buf).await;
        buf = b;
        let n = match r {
            Ok(n) if n > 0 => n,
            _ => return,
        };
        out.clear();
        let open = if rest.is_empty() {
            let (used, open) = common::answer(&buf[..n], &mut out);
            rest.extend_from_slice(&buf[used..n]);
            open
        } else {
            rest.extend_from_slice(&buf[..n]);
            let (used, open) = common::answer(&rest, &mut out);
            rest.drain(..used);
            open
        };
        buf.clear();
        if !out.is_empty() {
            let (r, o) = s.write_all(out).await;
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

fn main() {
    tokio_uring::builder().entries(4096).start(async {
        let l = TcpListener::from_std(common::listener(common::port()));
        loop {
            if let Ok((s, _)) = l.accept().await {
                let _ = s.set_nodelay(true);
                tokio_uring::spawn(conn(s));
            }
        }
    });
}
