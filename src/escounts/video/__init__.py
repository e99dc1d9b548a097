"""Videos: files, cameras and streams, GPU decoding, scaling."""
