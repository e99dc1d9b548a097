"""Many videos, on this machine or on many: one Parquet row per video, finished ones are never counted again."""
