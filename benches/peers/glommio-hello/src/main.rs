//! glommio with a bare httparse loop: what the runtime costs.
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::{
    net::{TcpListener, TcpStream},
    LocalExecutorBuilder, Placement,
};

async fn conn(mut s: TcpStream) {
    let _ = s.set_nodelay(true);
    let mut buf = vec![0u8; 8192];
    let mut have = 0;
    let mut out: Vec<u8> = Vec::with_capacity(512);
    loop {
        if have == buf.len() {
            buf.resize(have * 2, 0);
        }
        match s.read(&mut buf[have..]).await {
            Ok(n) if n > 0 => have += n,
            _ => return,
        }
        out.clear();
        let (used, open) = common::answer(&buf[..have], &mut out);
        buf.copy_within(used..have, 0);
        have -= used;
        if !out.is_empty() && s.write_all(&out).await.is_err() {
            return;
        }
        if !open {
            return;
        }
    }
}

fn main() {
    LocalExecutorBuilder::new(Placement::Unbound).make().unwrap().run(async {
        let l = TcpListener::bind(("127.0.0.1", common::port())).unwrap();
        loop {
            if let Ok(s) = l.accept().await {
                glommio::spawn_local(conn(s)).detach();
            }
        }
    });
}
