//! hyper on tokio's current-thread runtime, as its examples set it up.
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming, header, server::conn::http1, service::service_fn, Request, Response, StatusCode,
};
use hyper_util::rt::TokioIo;
use std::time::Duration;

async fn answer(req: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let mut status = StatusCode::OK;
    let body = match req.uri().path() {
        "/plaintext" => Bytes::from_static(common::BODY),
        "/echo" => req.into_body().collect().await?.to_bytes(),
        "/async" => {
            tokio::time::sleep(Duration::ZERO).await;
            Bytes::from_static(common::BODY)
        }
        "/worker" => tokio::task::spawn_blocking(|| Bytes::from_static(common::BODY)).await.unwrap(),
        _ => {
            status = StatusCode::NOT_FOUND;
            Bytes::from_static(b"404 Not Found\n")
        }
    };
    let mut r = Response::new(Full::new(body));
    *r.status_mut() = status;
    let h = r.headers_mut();
    h.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
    h.insert(header::SERVER, header::HeaderValue::from_static("hyper"));
    Ok(r)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let l = common::listener(common::port());
    l.set_nonblocking(true).unwrap();
    let l = tokio::net::TcpListener::from_std(l).unwrap();
    loop {
        let Ok((s, _)) = l.accept().await else { continue };
        tokio::spawn(async move {
            let _ = http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(TokioIo::new(s), service_fn(answer))
                .await;
        });
    }
}
