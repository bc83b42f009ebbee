//! xitca-web with one worker, on io_uring or on epoll.
use xitca_web::{
    error::Error,
    http::{header, HeaderValue, WebResponse},
    route::get,
    service::fn_service,
    App, WebContext,
};

async fn hello(ctx: WebContext<'_>) -> Result<WebResponse, Error> {
    let mut r = ctx.into_response("Hello, World!");
    r.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    r.headers_mut().insert(header::SERVER, HeaderValue::from_static("xitca"));
    Ok(r)
}

fn main() -> std::io::Result<()> {
    let s = App::new().at("/plaintext", get(fn_service(hello))).serve().worker_threads(1).backlog(4096);
    #[cfg(feature = "uring")]
    let s = s.enable_io_uring();
    s.listen(common::listener(common::port()))?.run().wait()
}
