//! monoio with a bare httparse loop: what the runtime costs.
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream};

async fn conn(mut s: TcpStream) {
    let mut buf: Vec<u8> = Vec::with_capacity(8192);
    let mut rest: Vec<u8> = Vec::new();
    let mut out: Vec<u8> = Vec::with_capacity(512);
    loop {
        let (r, b) = s.read(buf).await;
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
    monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().with_entries(4096).build().unwrap().block_on(
        async {
            let l = TcpListener::from_std(common::listener(common::port())).unwrap();
            loop {
                if let Ok((s, _)) = l.accept().await {
                    monoio::spawn(conn(s));
                }
            }
        },
    );
}
