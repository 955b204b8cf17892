"""Images of classes: the sets on which explanations are judged, and folders of one's own."""
