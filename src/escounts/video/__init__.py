"""From files, cameras and streams to frames; and which files are videos and which are pictures, by their names."""

VIDEO_SUFFIXES = frozenset(
    {".3g2", ".3gp", ".avi", ".flv", ".gif", ".m2ts", ".m4v", ".mjpeg", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg"}
    | {".mts", ".mxf", ".ogv", ".ts", ".webm", ".wmv", ".y4m"}
)
"""What the videos of a folder are called."""
IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""What the pictures of a folder that stands for a video are called."""
