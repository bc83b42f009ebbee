//! tokio, current thread, with a bare httparse loop: what the runtime costs.
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn conn(mut s: TcpStream) {
    let mut buf: Vec<u8> = Vec::with_capacity(8192);
    let mut out: Vec<u8> = Vec::with_capacity(512);
    loop {
        match s.read_buf(&mut buf).await {
            Ok(n) if n > 0 => {}
            _ => return,
        }
        out.clear();
        let (used, open) = common::answer(&buf, &mut out);
        buf.drain(..used);
        if !out.is_empty() && s.write_all(&out).await.is_err() {
            return;
        }
        if !open {
            return;
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let l = common::listener(common::port());
    l.set_nonblocking(true).unwrap();
    let l = TcpListener::from_std(l).unwrap();
    tokio::task::LocalSet::new()
        .run_until(async {
            loop {
                if let Ok((s, _)) = l.accept().await {
                    tokio::task::spawn_local(conn(s));
                }
            }
        })
        .await
}
