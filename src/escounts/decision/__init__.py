"""From what a network says of a video to one answer: count, unit, hypotheses, confidence and reasons."""
