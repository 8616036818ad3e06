"""Object storage: directories and files under URLs such as s3://bucket/photos.

`address` says what a URL is, and which package reads its scheme; `store` lists, reads and writes objects
through fsspec, whose packages do the retries; `copies` keeps local copies of what lies under a URL, and
`growing` puts files that grow together again, which are stored in parts.

Objects cannot be renamed, nor appended to: what must be seen whole has a COMMIT, which is written last.
"""
